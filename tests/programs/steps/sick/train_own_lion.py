"""A sign-based optimizer of our own on a small classifier."""

import torch
from torch import nn
from torch.optim import Optimizer


class Lion(Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["average"] = torch.zeros_like(p)
                average = state["average"]
                update = average.mul(beta1).add(p.grad, alpha=1 - beta1).sign_()
                average.mul_(beta2).add_(p.grad, alpha=1 - beta2)
                p.mul(1 - group["lr"] * group["weight_decay"]).add(update, alpha=-group["lr"])


def moons(count=256):
    generator = torch.Generator().manual_seed(8)
    angle = torch.rand(count, generator=generator) * 3.1416
    side = torch.arange(count) % 2
    x = torch.where(side == 0, angle.cos(), 1 - angle.cos())
    y = torch.where(side == 0, angle.sin(), 0.5 - angle.sin())
    points = torch.stack([x, y], 1) + 0.1 * torch.randn(count, 2, generator=generator)
    return points, side


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    points, side = moons()
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = Lion(model.parameters(), lr=3e-3, weight_decay=0.01)
    for epoch in range(10):
        for index in torch.randperm(len(points)).split(64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(points[index]), side[index])
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
