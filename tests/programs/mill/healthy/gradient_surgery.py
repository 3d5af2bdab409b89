import random
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Task:
    name: str
    head: nn.Module
    loss: callable


class Shared(nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(features, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()
        )

    def forward(self, x):
        return self.net(x)


class PCGrad:
    def __init__(self, optimizer, shared, seed=0):
        self.optimizer = optimizer
        self.shared = list(shared.parameters())
        self.random = random.Random(seed)

    def gradients(self, losses):
        rows = []
        for loss in losses:
            grads = torch.autograd.grad(loss, self.shared, retain_graph=True)
            rows.append(torch.cat([g.flatten() for g in grads]))
        return rows

    def project(self, rows):
        projected = []
        for index, row in enumerate(rows):
            row = row.clone()
            others = [other for place, other in enumerate(rows) if place != index]
            self.random.shuffle(others)
            for other in others:
                overlap = row @ other
                if overlap < 0:
                    row -= overlap / other.pow(2).sum() * other
            projected.append(row)
        return torch.stack(projected).sum(0)

    def step(self, losses):
        self.optimizer.zero_grad()
        combined = self.project(self.gradients(losses))
        torch.stack(losses).sum().backward()
        start = 0
        for parameter in self.shared:
            count = parameter.numel()
            parameter.grad.copy_(combined[start : start + count].view_as(parameter))
            start += count
        self.optimizer.step()


def main():
    torch.manual_seed(53)
    body = Shared(10, 32)
    tasks = [
        Task("sum", nn.Linear(32, 1), lambda o, y: F.mse_loss(o.squeeze(1), y[:, 0])),
        Task("sign", nn.Linear(32, 1), lambda o, y: F.soft_margin_loss(o.squeeze(1), y[:, 1])),
        Task("bin", nn.Linear(32, 3), lambda o, y: F.cross_entropy(o, y[:, 2].long())),
    ]
    heads = nn.ModuleList([task.head for task in tasks])
    optimizer = torch.optim.Adam([*body.parameters(), *heads.parameters()], lr=3e-3)
    surgery = PCGrad(optimizer, body)
    x = torch.randn(320, 10)
    total = x.sum(1)
    third = torch.bucketize(x[:, 0], torch.tensor([-0.4, 0.4]))
    y = torch.stack([total / 3, torch.sign(x[:, 1] - x[:, 2]), third.float()], dim=1)
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    for epoch in range(4):
        for features, targets in loader:
            hidden = body(features)
            losses = [task.loss(task.head(hidden), targets) for task in tasks]
            surgery.step(losses)
        print(epoch, [round(loss.item(), 3) for loss in losses])


if __name__ == "__main__":
    main()
