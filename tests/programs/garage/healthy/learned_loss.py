import math

import torch
import torch.nn.functional as F
from torch import nn


class LossNet(nn.Module):
    """Maps prediction and target to a loss."""

    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, prediction, target):
        pair = torch.cat([prediction, target], dim=-1)
        return F.softplus(self.net(pair)).mean()


class Learner(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(width, 1) * 0.5)
        self.b1 = nn.Parameter(torch.zeros(width))
        self.w2 = nn.Parameter(torch.randn(1, width) / math.sqrt(width))
        self.b2 = nn.Parameter(torch.zeros(1))

    def functional(self, x, weights):
        w1, b1, w2, b2 = weights
        return F.linear(torch.tanh(F.linear(x, w1, b1)), w2, b2)

    def weights(self):
        return [self.w1, self.b1, self.w2, self.b2]


def tasks(count, points=16):
    for _ in range(count):
        amplitude = torch.rand(1) * 2 + 0.5
        phase = torch.rand(1) * math.pi
        x = torch.rand(2 * points, 1) * 6 - 3
        y = amplitude * torch.sin(x + phase)
        yield x[:points], y[:points], x[points:], y[points:]


def adapt(learner, loss_net, x, y, rate, steps):
    weights = learner.weights()
    for _ in range(steps):
        inner = loss_net(learner.functional(x, weights), y)
        grads = torch.autograd.grad(inner, weights, create_graph=True)
        weights = [w - rate * g for w, g in zip(weights, grads)]
    return weights


def main():
    torch.manual_seed(0)
    learner = Learner()
    loss_net = LossNet()
    meta = torch.optim.Adam([*learner.parameters(), *loss_net.parameters()], lr=3e-3)
    for iteration in range(25):
        meta.zero_grad()
        outer = 0.0
        for xs, ys, xq, yq in tasks(4):
            weights = adapt(learner, loss_net, xs, ys, rate=0.05, steps=2)
            outer = outer + F.mse_loss(learner.functional(xq, weights), yq)
        outer = outer / 4
        outer.backward()
        meta.step()
        if iteration % 5 == 0:
            print(iteration, round(outer.item(), 4))


if __name__ == "__main__":
    main()
