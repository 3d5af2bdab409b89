"""Contrastive training of an image and a text tower."""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F


class Tower(nn.Module):
    def __init__(self, inputs, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, dim))

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


class TwoTowers(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.image, self.text = Tower(24, dim), Tower(12, dim)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, images, texts):
        image, text = self.image(images), self.text(texts)
        scale = self.logit_scale.exp().clamp(max=100.0)
        logits = scale * image @ text.T
        return logits, logits.T


def clip_loss(logits_per_image, logits_per_text):
    labels = torch.arange(len(logits_per_image))
    return (F.cross_entropy(logits_per_image, labels) + F.cross_entropy(logits_per_text, labels)) / 2


class Pairs:
    def __init__(self):
        self.to_image, self.to_text = torch.randn(6, 24), torch.randn(6, 12)

    def batch(self, n):
        meaning = torch.randn(n, 6)
        return meaning @ self.to_image + 0.1 * torch.randn(n, 24), meaning @ self.to_text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    model, pairs = TwoTowers(), Pairs()
    gains = [p for p in model.parameters() if p.ndim < 2]
    rest = [p for p in model.parameters() if p.ndim >= 2]
    optimizer = torch.optim.AdamW(
        [{"params": gains, "weight_decay": 0.0}, {"params": rest, "weight_decay": 0.1}], lr=args.lr
    )
    for step in range(args.steps):
        loss = clip_loss(*model(*pairs.batch(48)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item(), model.logit_scale.exp().item())


if __name__ == "__main__":
    main()
