"""A selective state space language model in the manner of Mamba, without a kernel."""

import torch
import torch.nn.functional as F
from torch import nn


class Mixer(nn.Module):
    def __init__(self, width, state=16):
        super().__init__()
        inner, rank = 2 * width, max(1, width // 16)
        self.rank, self.state = rank, state
        self.norm = nn.RMSNorm(width)
        self.input = nn.Linear(width, 2 * inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, 4, padding=3, groups=inner)
        self.select = nn.Linear(inner, rank + 2 * state, bias=False)
        self.step = nn.Linear(rank, inner)
        dt = torch.exp(torch.rand(inner) * 4.6 - 6.9).clamp(min=1e-4)
        with torch.no_grad():
            self.step.bias.copy_(dt + torch.log(-torch.expm1(-dt)))
        self.log_a = nn.Parameter(torch.log(torch.arange(1, state + 1).float()).repeat(inner, 1))
        self.skip = nn.Parameter(torch.ones(inner))
        self.output = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        u, gate = self.input(self.norm(x)).chunk(2, dim=-1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., : x.shape[1]]).transpose(1, 2)
        dt, b, c = self.select(u).split([self.rank, self.state, self.state], dim=-1)
        dt = F.softplus(self.step(dt))
        decay = torch.exp(-dt.unsqueeze(-1) * self.log_a.exp())
        drive = dt.unsqueeze(-1) * b.unsqueeze(2) * u.unsqueeze(-1)
        state, outputs = torch.zeros_like(drive[:, 0]), []
        for i in range(x.shape[1]):
            state = decay[:, i] * state + drive[:, i]
            outputs.append((state * c[:, i].unsqueeze(1)).sum(dim=-1))
        y = (torch.stack(outputs, dim=1) + u * self.skip) * F.silu(gate)
        return x + self.output(y)


class StateSpaceModel(nn.Module):
    def __init__(self, vocabulary=128, width=32, depth=8):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.words.weight, std=0.02)
        self.mixers = nn.ModuleList([Mixer(width) for _ in range(depth)])
        self.norm = nn.RMSNorm(width)
        for mixer in self.mixers:
            nn.init.normal_(mixer.output.weight, std=0.02 / (2 * depth) ** 0.5)

    def forward(self, tokens):
        x = self.words(tokens)
        for mixer in self.mixers:
            x = mixer(x)
        return F.linear(self.norm(x), self.words.weight)


def build_model():
    torch.manual_seed(209)
    return StateSpaceModel()


def build_batch():
    torch.manual_seed(210)
    tokens = torch.randint(0, 128, (3, 49))
    return tokens[:, :-1], tokens[:, 1:]


def loss_fn(output, batch):
    return F.cross_entropy(output.flatten(0, 1), batch[1].flatten())
