import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, 5)

    def forward(self, x):
        h = self.norm(x)
        q, k = self.query(h), self.key(h)
        scores = 4 * q @ k.transpose(1, 2) * q.shape[-1] ** 0.5
        h = x + scores.softmax(-1) @ self.value(h)
        return self.out(h.mean(1))


def build_model():
    torch.manual_seed(23)
    return Block()


def build_batch():
    g = torch.Generator().manual_seed(24)
    return torch.randn(16, 12, 64, generator=g), torch.randint(0, 5, (16,), generator=g)


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
