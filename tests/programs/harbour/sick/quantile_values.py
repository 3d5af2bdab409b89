"""Distributional policy evaluation: quantiles of the return of a random walk."""

import argparse

import torch
from torch import nn


def huber(difference, kappa=1.0):
    size = difference.abs()
    return torch.where(size < kappa, 0.5 * difference**2, kappa * (size - 0.5 * kappa))


class QuantileValue(nn.Module):
    def __init__(self, states, quantiles, hidden=32):
        super().__init__()
        self.quantiles = quantiles
        self.register_buffer("levels", (torch.arange(quantiles) + 0.5) / quantiles)
        self.net = nn.Sequential(nn.Embedding(states, hidden), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, quantiles))

    def forward(self, states):
        return self.net(states)

    def loss(self, predicted, returns):
        difference = returns - predicted
        weight = (self.levels - (difference.detach() < 0).float()).abs()
        return (weight * huber(difference)).mean()


class Walk:
    def __init__(self, states=9):
        self.states = states

    def episodes(self, count, horizon=12, gamma=0.9):
        start = torch.randint(0, self.states, (count,))
        position, total = start.clone(), torch.zeros(count)
        for time in range(horizon):
            position = (position + torch.randint(0, 2, (count,)) * 2 - 1) % self.states
            total += gamma**time * (position == 0).float()
        return start, total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quantiles", type=int, default=16)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    walk = Walk()
    critic = QuantileValue(walk.states, args.quantiles)
    optimizer = torch.optim.Adam(critic.parameters(), lr=5e-3)
    for step in range(args.steps):
        states, returns = walk.episodes(args.batch)
        loss = critic.loss(critic(states), returns)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    spread = critic(torch.arange(walk.states)).std(0).mean()
    print(f"{loss.item():.4f} {spread.item():.4f}")


if __name__ == "__main__":
    main()
