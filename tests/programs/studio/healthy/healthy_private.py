"""Differentially private training with gradients per example."""

import argparse

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(8, 24), nn.Linear(24, 2)

    def forward(self, x):
        return self.out(torch.tanh(self.hidden(x)))


class PrivateStep:
    def __init__(self, model, limit, noise, lr):
        self.model, self.limit, self.noise = model, limit, noise
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.5)

        def loss(params, x, y):
            return F.cross_entropy(functional_call(model, params, (x[None],)), y[None])

        self.per_example = vmap(grad(loss), in_dims=(None, 0, 0))

    def __call__(self, x, y):
        params = {name: p.detach() for name, p in self.model.named_parameters()}
        grads = self.per_example(params, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
        factor = (self.limit / norms).clamp(max=1.0)
        for name, p in self.model.named_parameters():
            total = torch.einsum("n,n...->...", factor, grads[name])
            p.grad = (total + self.noise * self.limit * torch.randn_like(p)) / len(x)
        self.optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--limit", type=float, default=0.5)
    parser.add_argument("--noise", type=float, default=0.8)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Model()
    step = PrivateStep(model, args.limit, args.noise, lr=0.5)
    rule = torch.randn(8)
    for i in range(args.steps):
        x = torch.randn(64, 8)
        y = (x @ rule > 0).long()
        step(x, y)
        if i % 20 == 0:
            with torch.no_grad():
                print(i, F.cross_entropy(model(x), y).item())


if __name__ == "__main__":
    main()
