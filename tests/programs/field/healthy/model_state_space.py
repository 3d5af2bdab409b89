import math

import torch
import torch.nn.functional as F
from torch import nn


class SelectiveScan(nn.Module):
    """y_t = C_t h_t, h_t = exp(dt_t A) h_{t-1} + dt_t B_t x_t"""

    def __init__(self, dim, state=8):
        super().__init__()
        self.state = state
        self.in_proj = nn.Linear(dim, 2 * dim)
        self.x_proj = nn.Linear(dim, 2 * state)
        self.dt_proj = nn.Linear(dim, dim)
        nn.init.constant_(self.dt_proj.bias, math.log(math.expm1(0.1)))
        self.A_log = nn.Parameter(torch.log(torch.arange(1, state + 1).float()).repeat(dim, 1))
        self.D = nn.Parameter(torch.ones(dim))
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, x):
        u, gate = self.in_proj(x).chunk(2, dim=-1)
        u = F.silu(u)
        dt = F.softplus(self.dt_proj(u))
        B, C = self.x_proj(u).split(self.state, dim=-1)
        A = -torch.exp(self.A_log)
        h = x.new_zeros(x.shape[0], u.shape[-1], self.state)
        ys = []
        for t in range(x.shape[1]):
            decay = torch.exp(dt[:, t, :, None] * A)
            h = decay * h + (dt[:, t] * u[:, t]).unsqueeze(-1) * B[:, t, None, :]
            ys.append((h * C[:, t, None, :]).sum(-1))
        y = torch.stack(ys, 1) + u * self.D
        return self.out_proj(y * F.silu(gate))


class Recall(nn.Module):
    def __init__(self, vocab=16, dim=24, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(SelectiveScan(dim) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.embed(ids)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return self.head(x)


def build_model():
    torch.manual_seed(9)
    return Recall()


def build_batch():
    g = torch.Generator().manual_seed(10)
    ids = torch.randint(0, 16, (8, 20), generator=g)
    return ids, ids.roll(2, 1)


def loss_fn(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())
