import torch
import torch.nn as nn


class GatedBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.fc = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        self.gate = nn.Parameter(torch.zeros(d))

    def forward(self, x):
        return x + self.gate * self.fc(self.norm(x))


def build_model():
    torch.manual_seed(441)
    return nn.Sequential(nn.Linear(6, 24), *(GatedBlock(24) for _ in range(6)), nn.Linear(24, 1))


def build_batch():
    g = torch.Generator().manual_seed(442)
    x = torch.randn(64, 6, generator=g)
    return x, torch.sin(x[:, :1]) + x[:, 1:2]


def loss_fn(output, batch):
    return nn.functional.mse_loss(output, batch[1])
