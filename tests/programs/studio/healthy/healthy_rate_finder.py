"""A learning-rate range test, then training from the saved start."""

import argparse
import copy

import torch
from torch import nn
from torch.nn import functional as F


class RangeTest:
    def __init__(self, model, low, high, steps):
        self.model, self.steps = model, steps
        self.low, self.factor = low, (high / low) ** (1 / steps)

    def run(self, batches):
        saved = copy.deepcopy(self.model.state_dict())
        optimizer = torch.optim.SGD(self.model.parameters(), lr=self.low)
        rates, losses, smooth = [], [], None
        for _ in range(self.steps):
            x, y = next(batches)
            loss = F.cross_entropy(self.model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            smooth = loss.item() if smooth is None else 0.8 * smooth + 0.2 * loss.item()
            rates.append(optimizer.param_groups[0]["lr"])
            losses.append(smooth)
            if smooth > 3 * min(losses):
                break
            for group in optimizer.param_groups:
                group["lr"] *= self.factor
        self.model.load_state_dict(saved)
        best = min(range(len(losses)), key=losses.__getitem__)
        return rates[best] / 5


def stream(centres):
    while True:
        y = torch.randint(0, len(centres), (64,))
        yield centres[y] + torch.randn(64, centres.shape[1]), y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    batches = stream(1.5 * torch.randn(5, 10))
    model = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 5))
    rate = RangeTest(model, 1e-3, 3.0, 40).run(batches)
    print("rate", rate)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    for step in range(args.steps):
        x, y = next(batches)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
