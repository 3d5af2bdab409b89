"""Mixture-of-experts regression."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    dim: int = 16
    hidden: int = 32
    experts: int = 4
    experts_per_token: int = 1
    steps: int = 60
    lr: float = 3e-3


class MoEFeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.gate = nn.Linear(config.dim, config.experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(config.dim, config.hidden), nn.SiLU(), nn.Linear(config.hidden, config.dim))
            for _ in range(config.experts)
        )

    def forward(self, x):
        scores = self.gate(x).softmax(dim=-1)
        weight, index = torch.topk(scores, k=self.config.experts_per_token, dim=-1)
        weight = weight / (weight.sum(dim=-1, keepdim=True) + 1e-20)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            token, slot = torch.where(index == i)
            if len(token):
                out = out.index_add(0, token, expert(x[token]) * weight[token, slot, None])
        return out


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm = nn.LayerNorm(config.dim)
        self.moe = MoEFeedForward(config)
        self.head = nn.Linear(config.dim, 1)

    def forward(self, x):
        return self.head(x + self.moe(self.norm(x))).squeeze(-1)


def main():
    torch.manual_seed(0)
    config = Config()
    model = Model(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    directions = torch.randn(4, config.dim)
    for step in range(config.steps):
        x = torch.randn(128, config.dim)
        kind = (x[:, 0] > 0).long() * 2 + (x[:, 1] > 0).long()
        y = (x * directions[kind]).sum(1)
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
