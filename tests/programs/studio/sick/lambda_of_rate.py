"""Warm-up and cosine decay, in the style of nanoGPT."""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR


class Schedule:
    def __init__(self, args):
        self.args = args

    def lr(self, step):
        args = self.args
        if step < args.warmup:
            return args.lr * (step + 1) / args.warmup
        progress = (step - args.warmup) / max(1, args.steps - args.warmup)
        return args.min_lr + 0.5 * (1 + math.cos(math.pi * progress)) * (args.lr - args.min_lr)


def build(args):
    model = nn.Sequential(nn.Linear(12, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95))
    schedule = Schedule(args)
    scheduler = LambdaLR(optimizer, schedule.lr)
    return model, optimizer, scheduler


def batch(n, rule):
    x = torch.randn(n, 12)
    return x, (x @ rule).argmax(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--min-lr", type=float, default=1e-4)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--steps", type=int, default=80)
    args = parser.parse_args()
    torch.manual_seed(0)
    rule = torch.randn(12, 4)
    model, optimizer, scheduler = build(args)
    for step in range(args.steps):
        x, y = batch(64, rule)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.2e}")


if __name__ == "__main__":
    main()
