"""Half-precision training of a small segmentation network."""

from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

config = SimpleNamespace(steps=30, lr=0.02, clip=SimpleNamespace(max_norm=1.0, norm_type=2.0), log_norm=False)


class Precision:
    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)

    def context(self):
        return torch.autocast("cpu", dtype=torch.bfloat16)

    def backward(self, loss):
        self.scaler.scale(loss).backward()

    def norm(self, parameters):
        if config.log_norm:
            self.scaler.unscale_(self.optimizer)
        return nn.utils.clip_grad_norm_(parameters, config.clip.max_norm, config.clip.norm_type)

    def step(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)


def block(before, after):
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(2, after), nn.ReLU())


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = block(1, 8), block(8, 16)
        self.merge = block(24, 8)
        self.classify = nn.Conv2d(8, 3, 1)

    def forward(self, x):
        fine = self.first(x)
        coarse = self.second(F.max_pool2d(fine, 2))
        return self.classify(self.merge(torch.cat([fine, F.interpolate(coarse, scale_factor=2)], 1)))


def main():
    torch.manual_seed(0)
    model = Unet()
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=0.9)
    precision = Precision(optimizer)
    for step in range(config.steps):
        images = torch.randn(4, 1, 16, 16).cumsum(-1) * 0.3
        labels = (images[:, 0] > 0).long() + (images[:, 0] > 0.6).long()
        with precision.context():
            loss = F.cross_entropy(model(images), labels)
        precision.backward(loss)
        norm = precision.norm(model.parameters())
        precision.step()
    print(f"{loss.item():.3f} {float(norm):.3f}")


if __name__ == "__main__":
    main()
