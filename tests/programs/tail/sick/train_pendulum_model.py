"""Predicts a pendulum by a recurrence written out."""

import torch
import torch.nn.functional as F
from torch import nn


class Recurrence(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.read = nn.Linear(2, width)
        self.turn = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, 2)
        nn.init.orthogonal_(self.turn.weight, gain=1.7)

    def forward(self, path):
        state = torch.zeros(path.shape[0], 32)
        for now in path.unbind(1):
            state = F.relu(self.read(now) + self.turn(state))
        return self.out(state)


def main():
    torch.manual_seed(9)
    model = Recurrence()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(12):
        phase = 6.3 * torch.rand(24, 1)
        times = phase + 0.2 * torch.arange(41)
        path = torch.stack([times.sin(), times.cos()], -1)
        loss = F.mse_loss(model(path[:, :40]), path[:, 40])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, f"{loss.item():.4g}")


main()
