"""Domain adaptation with a gradient-reversal layer."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class ReverseLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.alpha, None


class Network(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Linear(width, 16), nn.ReLU())
        self.classifier = nn.Linear(16, 3)
        self.domain = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x, alpha):
        h = self.features(x)
        return self.classifier(h), self.domain(ReverseLayer.apply(h, alpha))


class Domains:
    def __init__(self):
        self.centres, self.shift = torch.randn(3, 10), torch.randn(10)

    def batch(self, n, target):
        y = torch.randint(0, 3, (n,))
        return self.centres[y] + 0.5 * torch.randn(n, 10) + (self.shift if target else 0), y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    model, domains = Network(), Domains()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for step in range(args.steps):
        progress = step / args.steps
        alpha = 2 / (1 + torch.exp(torch.tensor(-10 * progress)).item()) - 1 + 0.05
        source, labels = domains.batch(32, False)
        target, _ = domains.batch(32, True)
        kinds, source_domain = model(source, alpha)
        _, target_domain = model(target, alpha)
        loss = (
            F.cross_entropy(kinds, labels)
            + F.cross_entropy(source_domain, torch.zeros(32, dtype=torch.long))
            + F.cross_entropy(target_domain, torch.ones(32, dtype=torch.long))
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
