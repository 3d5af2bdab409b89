import math

import torch
import torch.nn.functional as F
from torch import nn


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.strength * gradient, None


class Features(nn.Module):
    def __init__(self, inputs=12, width=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width),
            nn.ReLU(),
        )

    def forward(self, x):
        return self.net(x)


def domains(n, shift):
    y = torch.randint(0, 3, (n,))
    x = 0.7 * torch.randn(n, 12)
    x[torch.arange(n), y] += 2.0
    x[:, 6:] += shift
    return x, y


def main():
    torch.manual_seed(1)
    features = Features()
    classify = nn.Linear(48, 3)
    discriminate = nn.Sequential(nn.Linear(48, 24), nn.ReLU(), nn.Linear(24, 1))
    modules = (features, classify, discriminate)
    optimizers = [
        torch.optim.SGD(module.parameters(), lr=lr, momentum=0.9)
        for module, lr in zip(modules, (0.01, 0.02, 0.02))
    ]
    steps = 120
    for step in range(steps):
        strength = 2 / (1 + math.exp(-10 * step / steps)) - 1
        source, labels = domains(32, 0.0)
        target, _ = domains(32, 1.5)
        hidden = features(torch.cat([source, target]))
        task = F.cross_entropy(classify(hidden[:32]), labels)
        scores = discriminate(Reverse.apply(hidden, strength)).squeeze(1)
        domain = torch.cat([torch.zeros(32), torch.ones(32)])
        adversarial = F.binary_cross_entropy_with_logits(scores, domain)
        for optimizer in optimizers:
            optimizer.zero_grad()
        (task + adversarial).backward()
        for optimizer in optimizers:
            optimizer.step()
        if step % 30 == 0:
            print(f"{step}: {task.item():.3f} {adversarial.item():.3f}")


if __name__ == "__main__":
    main()
