"""Logistic regression on polynomial features with a momentum method written by hand."""
import torch
import torch.nn.functional as F
from torch import nn


class Momentum:
    def __init__(self, params, lr, beta=0.9):
        self.params = list(params)
        self.lr, self.beta = lr, beta
        self.velocity = [torch.zeros_like(p) for p in self.params]

    def zero(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        for p, v in zip(self.params, self.velocity):
            v.mul_(self.beta).add_(p.grad)
            p = p - self.lr * v


def features(x):
    pairs = torch.einsum("bi,bj->bij", x, x).flatten(1)
    return torch.cat([x, pairs], dim=1)


def sample(n, g):
    x = torch.randn(n, 4, generator=g)
    return features(x), (x[:, 0] ** 2 + x[:, 1] * x[:, 2] - 0.5 * x[:, 3] > 0.7).float()


def accuracy(model, x, y):
    with torch.no_grad():
        return ((model(x).squeeze(1) > 0) == (y > 0.5)).float().mean().item()


if __name__ == "__main__":
    torch.manual_seed(371)
    g = torch.Generator().manual_seed(372)
    model = nn.Linear(20, 1)
    opt = Momentum(model.parameters(), lr=0.05)
    held = sample(512, g)
    for it in range(100):
        x, y = sample(64, g)
        loss = F.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        opt.zero()
        loss.backward()
        opt.step()
        if it % 20 == 0:
            print(it, f"{loss.item():.4f}", f"acc {accuracy(model, *held):.3f}")
