"""Recurrent regression with gradient clipping."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Forecaster(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.rnn = nn.RNN(1, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        hidden, _ = self.rnn(x)
        return self.out(hidden[:, -1]).squeeze(-1)


class Learner:
    def __init__(self, model, lr, clip):
        self.model, self.clip = model, clip
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.params = (p for p in model.parameters() if p.requires_grad)

    def step(self, x, y):
        loss = F.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.params, self.clip)
        self.optimizer.step()
        return loss.item()


def series(n, length):
    start = 6.2832 * torch.rand(n, 1)
    speed = 0.2 + 0.3 * torch.rand(n, 1)
    wave = 4 * torch.sin(start + speed * torch.arange(length + 1))
    return wave[:, :-1, None], wave[:, -1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--clip", type=float, default=0.5)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()
    torch.manual_seed(0)
    learner = Learner(Forecaster(), args.lr, args.clip)
    for step in range(args.steps):
        loss = learner.step(*series(32, 16))
        if step % 10 == 0:
            print(step, loss)


if __name__ == "__main__":
    main()
