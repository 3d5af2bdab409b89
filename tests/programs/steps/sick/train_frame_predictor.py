"""Predict the code of the next frame from the code of this one."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, size=16, code=8):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(size, 32), nn.GELU(), nn.Linear(32, code), nn.LayerNorm(code)
        )

    def forward(self, frame):
        return self.net(frame)


def sequences(count):
    phase = torch.rand(count, 1) * 6.28
    speed = 0.2 + torch.rand(count, 1)
    grid = torch.arange(16) / 16 * 6.28
    return torch.sin(grid + phase), torch.sin(grid + phase + speed), speed


class World(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.dynamics = nn.Sequential(nn.Linear(9, 32), nn.GELU(), nn.Linear(32, 8))

    def loss(self, now, following, speed):
        guess = self.dynamics(torch.cat([self.encoder(now), speed], 1))
        target = self.encoder(following)
        return nn.functional.smooth_l1_loss(guess, target)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    world = World()
    optimizer = torch.optim.Adam(world.parameters(), lr=2e-3)
    for step in range(60):
        loss = world.loss(*sequences(48))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.5f}")
