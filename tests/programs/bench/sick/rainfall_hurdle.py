"""Hurdle model of daily rainfall: whether it rains, and how much."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class RainModel(nn.Module):
    def __init__(self, stations=6, features=8, hidden=24):
        super().__init__()
        self.station = nn.Embedding(stations, 4)
        self.body = nn.Sequential(nn.Linear(features + 4, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU())
        self.rain = nn.Linear(hidden, 1)
        self.amount = nn.Linear(hidden, 2)
        self.gauge = nn.Parameter(torch.ones(stations))

    def forward(self, batch):
        h = self.body(torch.cat([batch["weather"], self.station(batch["station"])], dim=1))
        mu, log_sigma = self.amount(h).unbind(dim=1)
        return self.rain(h).squeeze(1), mu, log_sigma


def log_normal_density(x, mu, log_sigma):
    standard = (torch.log(x) - mu) / log_sigma.exp()
    return -0.5 * standard.pow(2) - log_sigma - torch.log(x) - 0.5 * math.log(2 * math.pi)


def compute_loss(model, batch):
    logit, mu, log_sigma = model(batch)
    measured = batch["amount"] * F.softplus(model.gauge[batch["station"]])
    wet = batch["amount"] > 0
    density = log_normal_density(measured, mu, log_sigma)
    log_likelihood = torch.where(wet, F.logsigmoid(logit) + density, F.logsigmoid(-logit))
    return -log_likelihood.mean()


def build_model():
    torch.manual_seed(9)
    return RainModel()


def build_batch():
    g = torch.Generator().manual_seed(10)
    amount = torch.rand(32, generator=g) * 10
    amount[torch.rand(32, generator=g) < 0.5] = 0.0
    return {
        "weather": torch.randn(32, 8, generator=g),
        "station": torch.randint(6, (32,), generator=g),
        "amount": amount,
    }
