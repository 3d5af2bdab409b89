"""Parameter-efficient fine-tuning: adapters inside the blocks and a fresh classifier."""

import torch
import torch.nn.functional as F
from torch import nn


class Adapter(nn.Module):
    def __init__(self, width, rank=4):
        super().__init__()
        self.down = nn.Linear(width, rank)
        self.up = nn.Linear(rank, width)
        nn.init.normal_(self.up.weight, std=1e-3)

    def forward(self, x):
        return x + self.up(F.gelu(self.down(x)))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.adapter = nn.Identity()

    def forward(self, x):
        return self.adapter(x + self.mlp(self.norm(x)))


class Backbone(nn.Module):
    def __init__(self, width=24, depth=3, classes=10):
        super().__init__()
        self.embed = nn.Linear(12, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def adapt(model, classes, trainable=("adapter", "head")):
    width = model.head.in_features
    for block in model.blocks:
        block.adapter = Adapter(width)
    model.head = nn.Linear(width, classes)
    for name, parameter in model.named_parameters():
        parts = name.split(".")[1:]
        parameter.requires_grad = any(part in trainable for part in parts)
    return model


def main():
    torch.manual_seed(0)
    model = adapt(Backbone(), classes=3)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=2e-3)
    x = torch.randn(240, 12)
    labels = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
    for epoch in range(5):
        for index in torch.randperm(240).split(24):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[index]), labels[index])
            loss.backward()
            optimizer.step()
        print(epoch, round(loss.item(), 3))


if __name__ == "__main__":
    main()
