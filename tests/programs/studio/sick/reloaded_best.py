"""Train, and go back to the best state when validation gets worse."""

import argparse
import io

import torch
from torch import nn
from torch.nn import functional as F


def build_model():
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))


class Checkpoints:
    def __init__(self):
        self.buffer, self.best = None, float("inf")

    def save(self, model, score):
        self.best = score
        self.buffer = io.BytesIO()
        torch.save(model.state_dict(), self.buffer)

    def restore(self, model):
        self.buffer.seek(0)
        model.load_state_dict(torch.load(self.buffer))
        return model


def sample(n):
    x = torch.randn(n, 10)
    return x, (x[:, :1] * x[:, 1:2]).tanh() + 0.3 * torch.randn(n, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--lr", type=float, default=1e-2)
    args = parser.parse_args()
    torch.manual_seed(0)
    model, checkpoints = build_model(), Checkpoints()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    held_x, held_y = sample(128)
    for round_ in range(args.rounds):
        for _ in range(args.steps):
            x, y = sample(32)
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            score = F.mse_loss(model(held_x), held_y).item()
        if score < checkpoints.best:
            checkpoints.save(model, score)
        elif round_ < args.rounds - 1:
            model = checkpoints.restore(build_model())
            for group in optimizer.param_groups:
                group["lr"] *= 0.5
        print(round_, round(score, 4), "best", round(checkpoints.best, 4))


if __name__ == "__main__":
    main()
