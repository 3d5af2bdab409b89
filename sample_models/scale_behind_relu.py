"""A regression that predicts a variance, and makes it positive by a ReLU."""

import torch
from torch import nn


class Regression(nn.Module):
    """Predicts a mean and a variance for each example."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 32), nn.Tanh())
        self.mean = nn.Linear(32, 1)
        self.variance = nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and variance, each of shape (batch, 1)."""
        hidden = self.body(x)
        return self.mean(hidden), torch.relu(self.variance(hidden))  # GS731


torch.manual_seed(0)
model = Regression()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
likelihood = nn.GaussianNLLLoss()

for _ in range(30):
    x = torch.randn(64, 5)
    y = x.sum(1, keepdim=True) + 0.1 * torch.randn(64, 1)
    mean, variance = model(x)
    loss = likelihood(mean, y, variance)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
