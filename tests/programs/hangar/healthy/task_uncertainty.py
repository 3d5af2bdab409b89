import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F


class UncertaintyLoss(nn.Module):
    def __init__(self, tasks):
        super().__init__()
        self.log_variance = nn.ParameterDict({task: nn.Parameter(torch.zeros(())) for task in tasks})

    def forward(self, losses):
        total = 0
        for task, loss in losses.items():
            variance = self.log_variance[task]
            total = total + 0.5 * (torch.exp(-variance) * loss + variance)
        return total


class MultiTask(nn.Module):
    def __init__(self, inputs=20, width=48):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.price = nn.Linear(width, 1)
        self.demand = nn.Linear(width, 1)
        self.segment = nn.Linear(width, 5)

    def forward(self, rows):
        hidden = self.trunk(rows)
        return {"price": self.price(hidden), "demand": self.demand(hidden), "segment": self.segment(hidden)}


def batches(count, generator):
    mix = torch.randn(20, 7, generator=torch.Generator().manual_seed(0))
    for _ in range(count):
        rows = torch.randn(48, 20, generator=generator)
        answer = rows @ mix
        yield rows, {
            "price": 3 * answer[:, :1],
            "demand": 0.05 * answer[:, 1:2],
            "segment": answer[:, 2:].argmax(1),
        }


def task_losses(output, target):
    return {
        "price": F.mse_loss(output["price"], target["price"]),
        "demand": F.mse_loss(output["demand"], target["demand"]),
        "segment": F.cross_entropy(output["segment"], target["segment"]),
    }


def run(model, criterion, optimizer, steps):
    for step, (rows, target) in enumerate(batches(steps, torch.Generator().manual_seed(21))):
        losses = task_losses(model(rows), target)
        loss = criterion(losses)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, {name: round(value.item(), 3) for name, value in losses.items()})


if __name__ == "__main__":
    torch.manual_seed(12)
    network = MultiTask()
    balance = UncertaintyLoss(["price", "demand", "segment"])
    learned = itertools.chain(network.parameters(), balance.parameters())
    run(network, balance, torch.optim.Adam(learned, lr=3e-3), 80)
