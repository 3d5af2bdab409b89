"""Classifies long sequences with selective state space blocks."""

import torch
import torch.nn.functional as F
from torch import nn


class SelectiveBlock(nn.Module):
    def __init__(self, width, state=8, expand=2):
        super().__init__()
        inner = expand * width
        self.norm = nn.RMSNorm(width)
        self.input = nn.Linear(width, 2 * inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.select = nn.Linear(inner, 2 * state, bias=False)
        self.step = nn.Linear(inner, inner)
        nn.init.constant_(self.step.bias, -3.0)
        self.log_decay = nn.Parameter(torch.arange(1.0, state + 1).log().repeat(inner, 1))
        self.skip = nn.Parameter(torch.ones(inner))
        self.output = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        y, gate = self.input(self.norm(x)).chunk(2, dim=-1)
        length = y.shape[1]
        y = F.silu(self.conv(y.transpose(1, 2))[..., :length].transpose(1, 2))
        b, c = self.select(y).chunk(2, dim=-1)
        dt = F.softplus(self.step(y))
        decay = torch.exp(-dt.unsqueeze(-1) * self.log_decay.exp())
        drive = (dt * y).unsqueeze(-1) * b.unsqueeze(2)
        h = torch.zeros_like(drive[:, 0])
        outputs = []
        for t in range(length):
            h = decay[:, t] * h + drive[:, t]
            outputs.append(torch.einsum("bds,bs->bd", h, c[:, t]))
        y = torch.stack(outputs, dim=1) + self.skip * y
        return x + self.output(y * F.silu(gate))


class SequenceClassifier(nn.Module):
    def __init__(self, tokens=20, width=24, depth=3, classes=10):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.blocks = nn.Sequential(*[SelectiveBlock(width) for _ in range(depth)])
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.embedding(tokens))).mean(dim=1))


def build_model():
    torch.manual_seed(63)
    return SequenceClassifier()


def build_batch():
    torch.manual_seed(64)
    return torch.randint(0, 20, (4, 96)), torch.randint(0, 10, (4,))


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
