import random

import torch
import torch.nn.functional as F
from torch import nn


class MultiHead(nn.Module):
    def __init__(self, features=10, width=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.price = nn.Linear(width, 1)
        self.demand = nn.Linear(width, 1)
        self.segment = nn.Linear(width, 3)

    def forward(self, x):
        h = self.trunk(x)
        return self.price(h).squeeze(-1), self.demand(h).squeeze(-1), self.segment(h)


class PCGrad:
    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.parameters = [p for g in optimizer.param_groups for p in g["params"]]

    def backward(self, losses):
        gradients = []
        for loss in losses:
            grads = torch.autograd.grad(loss, self.parameters, retain_graph=True, allow_unused=True)
            grads = [torch.zeros_like(p) if g is None else g for p, g in zip(self.parameters, grads)]
            gradients.append(torch.cat([g.flatten() for g in grads]))
        merged = torch.zeros_like(gradients[0])
        for own in gradients:
            projected = own.clone()
            for other in random.sample(gradients, len(gradients)):
                product = projected.dot(other)
                if product < 0:
                    projected -= product / other.dot(other).clamp(min=1e-12) * other
            merged += projected
        self.assign(merged)

    def assign(self, flat):
        for p in self.parameters:
            p.grad, flat = flat[: p.numel()].view_as(p).clone(), flat[p.numel() :]

    def step(self):
        self.optimizer.step()

    def zero_grad(self):
        self.optimizer.zero_grad(set_to_none=True)


def market(count):
    x = torch.randn(count, 10)
    price = x[:, 0] + 0.5 * x[:, 1] ** 2
    demand = -x[:, 0] + torch.sin(x[:, 2])
    return x, price, demand, (x[:, 3] > 0).long() + (x[:, 4] > 0).long()


def main():
    random.seed(54)
    torch.manual_seed(54)
    model = MultiHead()
    pcgrad = PCGrad(torch.optim.Adam(model.parameters(), lr=3e-3))
    for step in range(50):
        x, price, demand, segment = market(64)
        p, d, s = model(x)
        losses = [F.mse_loss(p, price), F.smooth_l1_loss(d, demand), F.cross_entropy(s, segment)]
        pcgrad.zero_grad()
        pcgrad.backward(losses)
        pcgrad.step()
        if step % 10 == 0:
            print(step, [round(x.item(), 4) for x in losses])


main()
