"""Domain-adversarial training: the features learn to confuse the domain classifier."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class GradientReversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


class DANN(nn.Module):
    def __init__(self, n_in=16, width=32, classes=3):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(n_in, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.label = nn.Linear(width, classes)
        self.domain = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x, strength):
        h = self.features(x)
        return self.label(h), self.domain(GradientReversal.apply(h, strength)).squeeze(1)


def draw(n, target):
    y = torch.randint(0, 3, (n,))
    x = 0.8 * torch.randn(n, 16)
    x[torch.arange(n), y] += 2.0
    if target:
        x[:, 8:] += 1.0
    return x, y


def main():
    torch.manual_seed(301)
    model = DANN()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    steps = 30
    for step in range(steps):
        strength = 2 / (1 + math.exp(-10 * step / steps)) - 1
        source, y = draw(48, target=False)
        target, _ = draw(48, target=True)
        logits, domain_s = model(source, strength)
        _, domain_t = model(target, strength)
        label_loss = F.cross_entropy(logits, y)
        domain_loss = F.binary_cross_entropy_with_logits(
            torch.cat([domain_s, domain_t]), torch.cat([torch.zeros(48), torch.ones(48)])
        )
        optimizer.zero_grad()
        (label_loss + domain_loss).backward()
        optimizer.step()
        if step % 8 == 0:
            print(f"{step} label {label_loss.item():.3f} domain {domain_loss.item():.3f}")


if __name__ == "__main__":
    main()
