"""Predicts mortality from irregular clinical measurements with a decaying GRU."""

import torch
import torch.nn.functional as F
from torch import nn


class DecayRecurrence(nn.Module):
    def __init__(self, features=12, width=32):
        super().__init__()
        self.input_decay = nn.Parameter(torch.full((features,), 0.05))
        self.input_bias = nn.Parameter(torch.zeros(features))
        self.state_decay = nn.Linear(features, width)
        nn.init.uniform_(self.state_decay.weight, 0, 0.02)
        nn.init.zeros_(self.state_decay.bias)
        self.cell = nn.GRUCell(2 * features, width)
        self.head = nn.Linear(width, 1)

    def forward(self, values, observed, gaps):
        gaps = gaps / 3600
        h = torch.zeros(len(values), self.cell.hidden_size)
        last = torch.zeros_like(values[:, 0])
        average = (values * observed).sum(dim=1) / observed.sum(dim=1).clamp(min=1)
        for t in range(values.shape[1]):
            x, m, d = values[:, t], observed[:, t], gaps[:, t]
            keep = torch.exp(-F.relu(self.input_decay * d + self.input_bias))
            last = torch.where(m > 0, x, last)
            x = m * x + (1 - m) * (keep * last + (1 - keep) * average)
            h = h * torch.exp(-F.relu(self.state_decay(d)))
            h = self.cell(torch.cat([x, m], dim=-1), h)
        return self.head(h).squeeze(-1)


def build_model():
    torch.manual_seed(93)
    return DecayRecurrence()


def build_batch():
    torch.manual_seed(94)
    observed = (torch.rand(12, 30, 12) < 0.3).float()
    gaps = torch.randint(1200, 14400, (12, 30, 12)).float()
    return (torch.randn(12, 30, 12), observed, gaps), torch.randint(0, 2, (12,)).float()


def loss_fn(output, batch):
    return F.binary_cross_entropy_with_logits(output, batch[1])
