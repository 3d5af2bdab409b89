"""The nearest code is looked up, and nothing hands the gradient past the choice."""

import torch
from torch import nn
from torch.nn import functional


class Quantised(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(12, 4), nn.Linear(4, 12)
        self.codes = nn.Embedding(16, 4)

    def forward(self, x):
        z = self.encoder(x)
        distances = (z[:, None] - self.codes.weight).pow(2).sum(-1)
        nearest = distances.argmin(dim=1)  # <-
        return self.decoder(self.codes(nearest))


torch.manual_seed(0)
model = Quantised()
x = torch.randn(32, 12)
batch = (x, x)
loss_fn = functional.mse_loss
