"""A feature is computed with NumPy in the middle of the forward."""

import numpy
import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.front, self.back = nn.Conv1d(1, 8, 5, padding=2), nn.Linear(17, 3)

    def forward(self, x):
        h = self.front(x).mean(1)
        spectrum = numpy.abs(numpy.fft.rfft(h.detach().numpy()))  # <-
        return self.back(torch.from_numpy(spectrum).float())


torch.manual_seed(0)
model = Net()
batch = (torch.randn(8, 1, 32), torch.arange(8) % 3)
loss_fn = functional.cross_entropy
