"""A recurrent world model that predicts the next observation of a pendulum."""

from dataclasses import dataclass
from typing import Iterable

import torch
import torch.nn.functional as F
from torch import nn


class WorldModel(nn.Module):
    def __init__(self, observations=3, hidden=32):
        super().__init__()
        self.encode = nn.Linear(observations + 1, hidden)
        self.memory = nn.GRU(hidden, hidden, batch_first=True)
        self.decode = nn.Linear(hidden, observations)
        self.register_parameter("gain", nn.Parameter(torch.ones(()), requires_grad=False))

    def forward(self, observations, actions):
        x = torch.tanh(self.encode(torch.cat([observations, actions], -1)))
        hidden, _ = self.memory(x)
        return observations + self.gain * self.decode(hidden)


@dataclass
class Setup:
    model: nn.Module
    trained: Iterable
    optimizer: torch.optim.Optimizer
    max_norm: float = 0.5

    @classmethod
    def of(cls, model, lr):
        trained = filter(lambda p: p.requires_grad, model.parameters())
        return cls(model, trained, torch.optim.RMSprop(trained, lr=lr))

    def update(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.trained, self.max_norm)
        self.optimizer.step()


def swing(batch, length):
    angle, speed = torch.rand(batch) * 6.28, torch.randn(batch)
    observations, actions = [], []
    for _ in range(length + 1):
        observations.append(torch.stack([angle.cos(), angle.sin(), speed], -1))
        torque = torch.randn(batch)
        actions.append(torque[:, None])
        speed = 0.98 * speed - 0.3 * angle.sin() + 0.1 * torque
        angle = angle + 0.1 * speed
    return torch.stack(observations, 1), torch.stack(actions[:-1], 1)


def main():
    torch.manual_seed(0)
    setup = Setup.of(WorldModel(), lr=3e-3)
    for step in range(40):
        observations, actions = swing(16, 20)
        predicted = setup.model(observations[:, :-1], actions)
        loss = F.mse_loss(predicted, observations[:, 1:], reduction="none").sum((1, 2)).mean()
        setup.update(loss)
    print(f"{loss.item():.3f}")


main()
