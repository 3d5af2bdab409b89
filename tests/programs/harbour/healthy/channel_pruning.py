"""Train briefly, prune the channels of every hidden layer by norm, and fine-tune with masks."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class MaskedLinear(nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.register_buffer("mask", torch.ones(outputs))

    def forward(self, x):
        return super().forward(x) * self.mask

    @torch.no_grad()
    def prune(self, share):
        kept = max(1, int(share * self.out_features))
        self.mask.zero_()
        self.mask[self.weight.norm(dim=1).topk(kept).indices] = 1.0


def network(widths, classes):
    layers = []
    for before, after in zip(widths, widths[1:]):
        layers += [MaskedLinear(before, after), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], classes))


def run(model, x, y, steps, lr):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for step in range(steps):
        index = torch.randint(0, len(x), (64,))
        loss = F.cross_entropy(model(x[index]), y[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", type=float, default=0.15)
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(1024, 20)
    y = (x[:, :3].sum(1) > 0).long()
    model = network([20, 64, 32, 6], 2)
    print("dense", round(run(model, x, y, args.steps, 0.1), 3))
    for layer in model:
        if isinstance(layer, MaskedLinear):
            layer.prune(args.keep)
    print("pruned", round(run(model, x, y, args.steps, 0.05), 3))


if __name__ == "__main__":
    main()
