"""Siamese representation learning without negatives."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn


class View(NamedTuple):
    projection: torch.Tensor
    prediction: torch.Tensor

    def loss_against(self, other):
        return -F.cosine_similarity(self.projection, other.projection.detach(), dim=-1).mean()


class Siamese(nn.Module):
    def __init__(self, width=48, dim=24):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(30, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.projector = nn.Sequential(nn.Linear(width, dim, bias=False), nn.BatchNorm1d(dim), nn.ReLU(), nn.Linear(dim, dim))
        self.predictor = nn.Sequential(nn.Linear(dim, dim // 2), nn.ReLU(), nn.Linear(dim // 2, dim))

    def forward(self, *views):
        projections = [self.projector(self.backbone(view)) for view in views]
        return [View(z, self.predictor(z)) for z in projections]


class Augment:
    def __init__(self, noise=0.3, drop=0.2):
        self.noise, self.drop = noise, drop

    def __call__(self, x):
        keep = (torch.rand_like(x) > self.drop).float()
        return (x + self.noise * torch.randn_like(x)) * keep


def main():
    torch.manual_seed(0)
    model, augment = Siamese(), Augment()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40)
    data = torch.randn(512, 6) @ torch.randn(6, 30)
    for step in range(40):
        batch = data[torch.randint(0, 512, (64,))]
        first, second = model(augment(batch), augment(batch))
        loss = 0.5 * (first.loss_against(second) + second.loss_against(first))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    print(f"{loss.item():.3f}")


if __name__ == "__main__":
    main()
