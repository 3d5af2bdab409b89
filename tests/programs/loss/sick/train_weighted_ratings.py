"""Regression of ratings that count by their reliability."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(2)
x = torch.randn(400, 10)
y = torch.tanh(x @ torch.randn(10))
weight = torch.rand(400)
model = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(60):
    rows = torch.randperm(400)[:64]
    loss = (
        weight[rows] * F.smooth_l1_loss(model(x[rows]), y[rows].unsqueeze(1), reduction="none")
    ).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
