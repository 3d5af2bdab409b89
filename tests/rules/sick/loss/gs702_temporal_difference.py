"""Values `[32, 1]` of a critic against returns `[32]`."""

import torch
from torch import nn


def loss_fn(model, batch):
    states, rewards, after = batch
    with torch.no_grad():
        goals = rewards + 0.9 * model(after).squeeze(1)
    advantage = goals - model(states)  # <-
    return advantage.pow(2).mean()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
batch = (torch.randn(32, 4), torch.randn(32), torch.randn(32, 4))
