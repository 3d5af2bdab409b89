"""Evolution strategies that fill .grad and use an optimizer."""

import argparse

import torch
from torch import nn


class Controller(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x):
        return 2 * torch.tanh(self.net(x))


@torch.no_grad()
def episode(controller, starts, steps=25):
    place, speed, cost = starts[:, 0], starts[:, 1], 0.0
    for _ in range(steps):
        push = controller(torch.stack([place, speed], 1)).squeeze(1)
        speed = speed + 0.1 * (push - 0.5 * torch.sin(place))
        place = place + 0.1 * speed
        cost = cost + (place**2 + 0.1 * speed**2 + 0.01 * push**2).mean()
    return float(cost) / steps


class Strategy:
    def __init__(self, controller, pairs, sigma, lr):
        self.controller, self.pairs, self.sigma = controller, pairs, sigma
        self.optimizer = torch.optim.Adam(controller.parameters(), lr=lr)

    def step(self):
        flat = nn.utils.parameters_to_vector(self.controller.parameters()).detach()
        starts = torch.randn(16, 2)
        estimate = torch.zeros_like(flat)
        for _ in range(self.pairs):
            direction = torch.randn_like(flat)
            costs = []
            for sign in (1, -1):
                nn.utils.vector_to_parameters(flat + sign * self.sigma * direction, self.controller.parameters())
                costs.append(episode(self.controller, starts))
            estimate += (costs[0] - costs[1]) / (2 * self.sigma * self.pairs) * direction
        nn.utils.vector_to_parameters(flat, self.controller.parameters())
        start = 0
        for p in self.controller.parameters():
            p.grad = estimate[start : start + p.numel()].view_as(p).clone()
            start += p.numel()
        self.optimizer.step()
        return episode(self.controller, starts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--generations", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(0)
    strategy = Strategy(Controller(), pairs=8, sigma=0.1, lr=0.05)
    for generation in range(args.generations):
        cost = strategy.step()
        if generation % 5 == 0:
            print(generation, cost)


if __name__ == "__main__":
    main()
