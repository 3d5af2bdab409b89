"""A decaying GRU for irregular measurements where some features are missing throughout."""

import torch
import torch.nn.functional as F
from torch import nn


class DecayingGRU(nn.Module):
    def __init__(self, features=16, width=40):
        super().__init__()
        self.features, self.width = features, width
        self.input_decay = nn.Parameter(torch.rand(features) * 0.5)
        self.hidden_decay = nn.Linear(features, width)
        self.gates = nn.Linear(2 * features + width, 2 * width)
        self.candidate = nn.Linear(2 * features + width, width)
        self.head = nn.Linear(width, 3)

    def forward(self, x, mask, delta):
        h = x.new_zeros(len(x), self.width)
        last = x.new_zeros(len(x), self.features)
        for t in range(x.shape[1]):
            m = mask[:, t]
            last = m * x[:, t] + (1 - m) * last
            value = m * x[:, t] + (1 - m) * torch.exp(-F.relu(self.input_decay * delta[:, t])) * last
            h = h * torch.exp(-F.relu(self.hidden_decay(delta[:, t])))
            joined = torch.cat([value, m, h], dim=1)
            z, r = torch.sigmoid(self.gates(joined)).chunk(2, dim=1)
            new = torch.tanh(self.candidate(torch.cat([value, m, r * h], dim=1)))
            h = (1 - z) * h + z * new
        return self.head(h)


def build_model():
    torch.manual_seed(225)
    return DecayingGRU()


def build_batch():
    torch.manual_seed(226)
    mask = (torch.rand(16, 24, 16) < 0.4).float()
    mask[:, :, [3, 11]] = 0
    x = torch.randn(16, 24, 16) * mask
    delta = torch.rand(16, 24, 16) * 2
    labels = torch.randint(0, 2, (16, 3)).float()
    labels[torch.rand(16, 3) < 0.3] = -1
    return (x, mask, delta), labels


def loss_fn(output, batch):
    known = batch[1] >= 0
    loss = F.binary_cross_entropy_with_logits(output, batch[1].clamp(min=0), reduction="none")
    return (loss * known).sum() / known.sum()
