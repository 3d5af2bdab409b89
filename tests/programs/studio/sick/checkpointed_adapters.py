"""Fine-tune adapters of a frozen transformer with activation checkpointing."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Adapter(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base
        self.a = nn.Linear(base.in_features, rank, bias=False)
        self.b = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(x)))


class Tagger(nn.Module):
    def __init__(self, vocab=30, dim=16, layers=2, tags=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(layers))
        self.classifier = nn.Linear(dim, tags)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return self.classifier(x)


def prepare(model):
    model.requires_grad_(False)
    for block in model.blocks:
        block.up, block.down = Adapter(block.up), Adapter(block.down)
    model.classifier.requires_grad_(True)
    return [p for p in model.parameters() if p.requires_grad]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Tagger()
    optimizer = torch.optim.AdamW(prepare(model), lr=args.lr)
    for step in range(args.steps):
        ids = torch.randint(0, 30, (16, 10))
        tags = (ids + ids.roll(1, dims=1)) % 3
        loss = F.cross_entropy(model(ids).flatten(0, 1), tags.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
