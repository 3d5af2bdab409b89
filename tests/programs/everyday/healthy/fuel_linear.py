import argparse
import logging

import torch
from torch import nn, optim

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("fuel")


class FuelModel(nn.Module):
    """Consumption of a car from its weight, power, year and size."""

    def __init__(self, inputs=4, hidden=24):
        super().__init__()
        self.first = nn.Linear(inputs, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.last = nn.Linear(hidden, 1)

    def forward(self, cars):
        h = torch.relu(self.first(cars))
        h = torch.relu(self.second(h))
        return self.last(h)


def cars(n):
    x = torch.randn(n, 4)
    litres = 3.0 + 1.2 * x[:, :1] + 0.8 * x[:, 1:2] - 0.4 * x[:, 2:3] * x[:, 3:]
    return x, litres + 0.1 * torch.randn(n, 1)


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=32)
    return parser.parse_args()


def main(opt):
    torch.manual_seed(0)
    x, y = cars(384)
    model = FuelModel()
    optimizer = optim.SGD(model.parameters(), lr=opt.lr, momentum=opt.momentum)
    mse = nn.MSELoss()
    for epoch in range(opt.epochs):
        order = torch.randperm(len(x))
        total = 0.0
        for rows in order.split(opt.batch):
            optimizer.zero_grad()
            loss = mse(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            total += loss.item()
        log.info("epoch %d loss %.4f", epoch, total * opt.batch / len(x))


if __name__ == "__main__":
    main(options())
