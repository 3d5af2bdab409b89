import torch
import torch.nn as nn


def signed_log(x):
    return torch.where(x > 0, torch.log(x.clamp(min=1e-6)), torch.zeros_like(x))


class DemandForecast(nn.Module):
    def __init__(self, lags=12, hidden=24):
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(lags))
        self.net = nn.Sequential(nn.Linear(lags, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, series):
        return self.net(signed_log(series * self.gain.exp())).squeeze(-1)


def build_model():
    torch.manual_seed(221)
    return DemandForecast()


def build_batch():
    g = torch.Generator().manual_seed(222)
    series = torch.poisson(torch.full((48, 12), 2.0), generator=g)
    return series, series[:, -3:].mean(1)


def loss_fn(output, batch):
    return nn.functional.l1_loss(output, batch[1])
