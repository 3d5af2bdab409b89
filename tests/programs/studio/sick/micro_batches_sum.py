"""Sparse autoencoder on activations, with gradient accumulation."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class SparseAutoencoder(nn.Module):
    def __init__(self, width, features):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width))
        self.encoder = nn.Linear(width, features)
        self.decoder = nn.Linear(features, width, bias=False)

    def forward(self, x):
        codes = F.relu(self.encoder(x - self.bias))
        return self.decoder(codes) + self.bias, codes


class Activations:
    def __init__(self, width, directions=64):
        self.directions = F.normalize(torch.randn(directions, width), dim=1)

    def batch(self, n):
        active = (torch.rand(n, len(self.directions)) < 0.05).float()
        return active * torch.rand_like(active) @ self.directions


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--features", type=int, default=96)
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--accumulation-steps", type=int, default=8)
    parser.add_argument("--updates", type=int, default=25)
    parser.add_argument("--sparsity", type=float, default=1e-2)
    parser.add_argument("--lr", type=float, default=0.1)
    return parser.parse_args()


def main():
    args = parse()
    torch.manual_seed(0)
    model = SparseAutoencoder(args.width, args.features)
    data = Activations(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    optimizer.zero_grad()
    for micro_step in range(args.updates * args.accumulation_steps):
        x = data.batch(args.micro_batch)
        decoded, codes = model(x)
        loss = F.mse_loss(decoded, x) + args.sparsity * codes.abs().mean()
        loss.backward()
        if (micro_step + 1) % args.accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
            print(micro_step + 1, round(loss.item(), 5))


if __name__ == "__main__":
    main()
