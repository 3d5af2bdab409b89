"""A concrete selector of input features."""

import torch
from torch import nn
from torch.nn import functional as F


class FeatureSelector(nn.Module):
    def __init__(self, features, chosen, temperature=1.0):
        super().__init__()
        self.logits = nn.Parameter(0.01 * torch.randn(chosen, features))
        self.temperature = temperature

    def gates(self):
        uniform = torch.rand_like(self.logits).clamp(1e-6, 1 - 1e-6)
        noisy = (self.logits - torch.log(-torch.log(uniform))) / self.temperature
        soft = noisy.softmax(dim=-1)
        hard = F.one_hot(soft.argmax(-1), soft.shape[-1]).to(soft.dtype)
        return hard - soft.detach() + soft

    def forward(self, x):
        gates = self.gates() if self.training else F.one_hot(self.logits.argmax(-1), x.shape[1]).float()
        return x @ gates.T


class Predictor(nn.Module):
    def __init__(self, features=30, chosen=5, classes=3, width=24):
        super().__init__()
        self.selector = FeatureSelector(features, chosen)
        self.net = nn.Sequential(nn.Linear(chosen, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, x):
        return self.net(self.selector(x))


def build_model():
    torch.manual_seed(0)
    return Predictor()


def build_batch():
    torch.manual_seed(1)
    x = torch.randn(64, 30)
    return x, (x[:, 3] + x[:, 17] > 0).long() + (x[:, 5] > 1).long()


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
