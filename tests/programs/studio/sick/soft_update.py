"""Temporal-difference learning with a soft target."""

import argparse
import copy

import torch
from torch import nn
from torch.nn import functional as F


class ValueNet(nn.Module):
    def __init__(self, state=4, width=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(state, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


@torch.no_grad()
def soft_update(online, target, tau):
    for p, t in zip(online.parameters(), target.parameters(), strict=True):
        t.copy_((1 - tau) * p + tau * t)


class Drift:
    def __init__(self, state=4):
        self.matrix = 0.9 * torch.linalg.qr(torch.randn(state, state)).Q

    def transitions(self, n):
        x = torch.randn(n, 4)
        return x, x[:, 0].tanh(), x @ self.matrix + 0.05 * torch.randn(n, 4)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tau", type=float, default=0.005)
    parser.add_argument("--gamma", type=float, default=0.9)
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    torch.manual_seed(0)
    process, online = Drift(), ValueNet()
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = torch.optim.Adam(online.parameters(), lr=3e-3)
    for step in range(args.steps):
        x, reward, after = process.transitions(64)
        with torch.no_grad():
            goal = reward + args.gamma * target(after)
        loss = F.mse_loss(online(x), goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        soft_update(online, target, args.tau)
        if step % 50 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
