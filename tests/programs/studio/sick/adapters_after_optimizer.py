"""Fine-tune a small classifier with low-rank adapters."""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F


class LoRALinear(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.empty(rank, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.scaling = alpha / rank

    def forward(self, x):
        return self.base(x) + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling


class Classifier(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.embed = nn.Linear(16, width)
        self.fc1 = nn.Linear(width, width)
        self.fc2 = nn.Linear(width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = F.gelu(self.embed(x))
        x = x + F.gelu(self.fc1(x))
        x = x + F.gelu(self.fc2(x))
        return self.head(x)


def inject(model, targets, rank, alpha):
    for param in model.parameters():
        param.requires_grad_(False)
    for name in targets:
        setattr(model, name, LoRALinear(getattr(model, name), rank, alpha))
    for param in model.head.parameters():
        param.requires_grad_(True)
    return model


def make_batch(generator, size):
    x = torch.randn(size, 16, generator=generator)
    y = (x[:, :4].sum(1) > 0).long() + (x[:, 4] > 0.5).long()
    return x, y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Classifier(32, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    model = inject(model, ["fc1", "fc2"], args.rank, alpha=8)
    for step in range(args.steps):
        x, y = make_batch(generator, 64)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
