"""Feature selection by hard 0/1 gates trained with a straight-through estimator."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class GatedSelector(nn.Module):
    def __init__(self, n_in=16, hidden=24):
        super().__init__()
        self.gate_logits = nn.Parameter(0.1 * torch.randn(n_in))
        self.net = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def gates(self):
        soft = torch.sigmoid(self.gate_logits)
        hard = (soft > 0.5).float()
        return hard + soft - soft.detach()

    def forward(self, x):
        gates = self.gates()
        return self.net(x * gates), gates


def build_model():
    torch.manual_seed(341)
    return GatedSelector()


def build_batch():
    g = torch.Generator().manual_seed(342)
    x = torch.randn(48, 16, generator=g)
    return x, 2 * x[:, :1] - x[:, 1:2] + 0.1 * torch.randn(48, 1, generator=g)


def loss_fn(output, batch):
    prediction, gates = output
    return F.mse_loss(prediction, batch[1]) + 0.02 * gates.sum()
