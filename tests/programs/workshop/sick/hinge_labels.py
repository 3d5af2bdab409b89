import torch
import torch.nn as nn


class SVMHead(nn.Module):
    def __init__(self, d=10, hidden=32):
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(d, hidden), nn.ReLU())
        self.w = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.w(self.phi(x)).squeeze(-1)


def hinge(score, y):
    return torch.clamp(1 - y * score, min=0).mean()


def build_model():
    torch.manual_seed(0)
    return SVMHead()


def build_batch():
    torch.manual_seed(1)
    x = torch.randn(64, 10)
    y = (x[:, 0] + x[:, 1] > 0).float()
    return x, y


def loss_fn(output, batch):
    return hinge(output, batch[1])
