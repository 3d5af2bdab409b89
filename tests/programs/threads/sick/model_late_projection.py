import torch
import torch.nn.functional as F
from torch import nn


class Pooler(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.conv = nn.Conv1d(4, width, 3, padding=1)
        self.score = nn.Linear(width, 3)

    def forward(self, x):
        h = F.relu(self.conv(x)).mean(-1)
        h = F.relu(nn.Linear(h.shape[1], h.shape[1])(h))
        return self.score(h)


def build_model():
    torch.manual_seed(1)
    return Pooler()


def build_batch():
    g = torch.Generator().manual_seed(2)
    return torch.randn(24, 4, 20, generator=g), torch.randint(0, 3, (24,), generator=g)


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
