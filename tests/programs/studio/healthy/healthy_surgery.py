"""Gradient surgery for two tasks."""

import argparse
import random

import torch
from torch import nn
from torch.nn import functional as F


class Shared(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.heads = nn.ModuleList([nn.Linear(width, 1), nn.Linear(width, 3)])

    def forward(self, x):
        h = self.trunk(x)
        return self.heads[0](h).squeeze(-1), self.heads[1](h)


def flat_gradient(loss, params):
    grads = torch.autograd.grad(loss, params, retain_graph=True, allow_unused=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(params, grads, strict=True)])


def project(gradients):
    out = []
    for gradient in gradients:
        changed = gradient.clone()
        for other in random.sample(gradients, len(gradients)):
            overlap = changed @ other
            if overlap < 0:
                changed -= overlap / other.dot(other) * other
        out.append(changed)
    return torch.stack(out).sum(0)


def assign(params, flat):
    start = 0
    for p in params:
        p.grad = flat[start : start + p.numel()].view_as(p).clone()
        start += p.numel()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    model = Shared()
    params = list(model.parameters())
    optimizer = torch.optim.Adam(params, lr=3e-3)
    for step in range(args.steps):
        x = torch.randn(64, 10)
        value, kind = model(x)
        losses = [
            F.mse_loss(value, torch.sin(2 * x[:, 0]) + x[:, 1]),
            F.cross_entropy(kind, x[:, :3].argmax(1)),
        ]
        assign(params, project([flat_gradient(loss, params) for loss in losses]))
        optimizer.step()
        if step % 20 == 0:
            print(step, [loss.item() for loss in losses])


if __name__ == "__main__":
    main()
