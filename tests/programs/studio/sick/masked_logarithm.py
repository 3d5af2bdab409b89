"""A network for zero-inflated amounts of rain."""

import torch
from torch import nn
from torch.nn import functional as F


class RainModel(nn.Module):
    def __init__(self, features=9, width=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.wet, self.log_mean, self.log_spread = (nn.Linear(width, 1) for _ in range(3))
        self.threshold = nn.Parameter(torch.tensor(0.2))

    def forward(self, x, amount):
        h = self.body(x)
        return {
            "wet": self.wet(h).squeeze(-1),
            "mean": self.log_mean(h).squeeze(-1),
            "spread": self.log_spread(h).squeeze(-1),
            "excess": amount - F.softplus(self.threshold) * (amount > 0),
        }


def log_normal(excess, mean, spread):
    z = (torch.log(excess) - mean) / spread.exp()
    density = -0.5 * z.pow(2) - spread
    return torch.where(excess > 0, density, torch.zeros_like(density))


def build_model():
    torch.manual_seed(0)
    return RainModel()


def build_batch():
    torch.manual_seed(1)
    x = torch.randn(48, 9)
    amount = torch.where(x[:, 0] > 0, 1.5 + torch.exp(x[:, 1]), torch.zeros(48))
    return {"x": x, "amount": amount}


def loss_fn(output, batch):
    wet = (batch["amount"] > 0).float()
    occurrence = F.binary_cross_entropy_with_logits(output["wet"], wet)
    amounts = log_normal(output["excess"], output["mean"], output["spread"])
    return occurrence - amounts.sum() / wet.sum()
