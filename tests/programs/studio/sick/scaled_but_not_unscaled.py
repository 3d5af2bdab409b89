"""Mixed-precision regression with a gradient scaler."""

import argparse
import contextlib

import torch
from torch import nn
from torch.nn import functional as F


class Config:
    def __init__(self, args):
        self.steps = args.steps
        self.lr = args.lr
        self.amp = not args.no_amp


class Engine:
    def __init__(self, model, config):
        self.model, self.config = model, config
        self.optimizer = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", enabled=config.amp)

    def autocast(self):
        if not self.config.amp:
            return contextlib.nullcontext()
        return torch.autocast("cpu", dtype=torch.bfloat16)

    def step(self, x, y):
        with self.autocast():
            out = self.model(x)
            loss = F.smooth_l1_loss(out.float(), y)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.optimizer.step()
        return loss.detach()


def data(n, weights):
    x = torch.randn(n, 16)
    return x, torch.tanh(x @ weights)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--no-amp", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    weights = torch.randn(16, 2) / 4
    model = nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 2))
    engine = Engine(model, Config(args))
    for step in range(args.steps):
        loss = engine.step(*data(64, weights))
        if step % 10 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
