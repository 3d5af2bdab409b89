"""A trainer with an exponential moving average of the weights."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class Unet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down = nn.Conv2d(1, width, 3, 2, 1)
        self.middle = nn.Conv2d(width, width, 3, 1, 1)
        self.up = nn.ConvTranspose2d(width, width, 2, 2)
        self.out = nn.Conv2d(width + 1, 1, 3, 1, 1)

    def forward(self, x):
        h = F.silu(self.down(x))
        h = F.silu(self.middle(h)) + h
        return self.out(torch.cat([F.silu(self.up(h)), x], dim=1))


class Trainer:
    decay = 0.98

    def __init__(self, model):
        self.model = model
        self.average = None
        self.setup_optimizer()
        self.setup_average()

    def setup_optimizer(self):
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)

    def setup_average(self):
        self.average, self.model = copy.deepcopy(self.model), self.model
        self.average.eval().requires_grad_(False)

    @torch.no_grad()
    def update_average(self):
        for slow, fast in zip(self.average.parameters(), self.model.parameters()):
            slow.lerp_(fast, 1 - self.decay)

    def step(self, clean):
        sigma = torch.rand(len(clean), 1, 1, 1)
        noise = torch.randn_like(clean)
        predicted = self.model(clean + sigma * noise)
        loss = F.mse_loss(predicted, noise)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.update_average()
        return loss.item()


def pictures(count, size=16):
    rows = torch.arange(size).float()
    frequency = torch.rand(count, 1, 1, 1)
    return torch.sin(frequency * rows.view(1, 1, -1, 1)) * torch.cos(frequency * rows.view(1, 1, 1, -1))


if __name__ == "__main__":
    torch.manual_seed(0)
    trainer = Trainer(Unet())
    losses = [trainer.step(pictures(16)) for _ in range(40)]
    print(f"{losses[0]:.3f} -> {losses[-1]:.3f}")
