from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention


@dataclass
class MoEConfig:
    vocabulary: int = 30
    width: int = 32
    depth: int = 2
    experts: int = 4
    active: int = 2
    length: int = 16
    jitter: float = 0.01


class Chains(Dataset):
    def __init__(self, config, count):
        start = torch.randint(0, config.vocabulary, (count, 1))
        stride = torch.randint(1, 4, (count, 1))
        steps = torch.arange(config.length + 1)
        self.rows = (start + stride * steps) % config.vocabulary

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index, :-1], self.rows[index, 1:]


class Router(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate = nn.Linear(config.width, config.experts, bias=False)
        self.active = config.active
        self.jitter = config.jitter

    def forward(self, tokens):
        if self.training and self.jitter > 0:
            tokens = tokens * torch.empty_like(tokens).uniform_(1 - self.jitter, 1 + self.jitter)
        probabilities = self.gate(tokens).softmax(-1)
        values, experts = probabilities.topk(self.active, dim=-1)
        weights = values
        return weights / weights.sum(-1, keepdim=True), experts


class MixtureOfExperts(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.router = Router(config)
        self.experts = nn.ModuleList(
            nn.Sequential(
                nn.Linear(config.width, 2 * config.width),
                nn.SiLU(),
                nn.Linear(2 * config.width, config.width),
            )
            for _ in range(config.experts)
        )

    def forward(self, x):
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens)
        output = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == index)
            if len(rows):
                output.index_add_(0, rows, weights[rows, slot, None] * expert(tokens[rows]))
        return output.view_as(x)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(config.width) for _ in range(2)])
        inner = GPT2Config(
            n_embd=config.width, n_head=4, n_positions=config.length, attn_implementation="eager"
        )
        self.attention = GPT2Attention(inner, layer_idx=0)
        self.moe = MixtureOfExperts(config)
        mask = torch.full((config.length, config.length), float("-inf")).triu(1)
        self.register_buffer("mask", mask[None, None], persistent=False)

    def forward(self, x):
        x = x + self.attention(self.norms[0](x), attention_mask=self.mask)[0]
        return x + self.moe(self.norms[1](x))


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Parameter(0.02 * torch.randn(config.length, config.width))
        self.blocks = nn.Sequential(*[Block(config) for _ in range(config.depth)])
        self.head = nn.Sequential(
            nn.LayerNorm(config.width), nn.Linear(config.width, config.vocabulary)
        )

    def forward(self, ids):
        return self.head(self.blocks(self.tokens(ids) + self.places))


def main():
    torch.manual_seed(28)
    config = MoEConfig()
    model = Model(config)
    loader = DataLoader(Chains(config, 160), batch_size=16, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(3):
        for ids, targets in loader:
            loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
