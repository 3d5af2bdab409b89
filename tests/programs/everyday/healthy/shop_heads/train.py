"""Predict several properties of a shop visit with one model."""

import torch

from data import visits
from torch import nn

TASKS = {"buys": 2, "device": 3, "hour": 4}


class VisitModel(nn.Module):
    def __init__(self, features, hidden, tasks):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.heads = nn.ModuleDict({name: nn.Linear(hidden, classes) for name, classes in tasks.items()})

    def forward(self, x):
        h = self.body(x)
        return {name: head(h) for name, head in self.heads.items()}


def main():
    torch.manual_seed(1)
    loader = visits(640, TASKS, batch_size=32)
    model = VisitModel(features=20, hidden=64, tasks=TASKS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    criterion = torch.nn.CrossEntropyLoss()

    for epoch in range(4):
        totals = dict.fromkeys(TASKS, 0.0)
        for x, targets in loader:
            outputs = model(x)
            losses = {task: criterion(outputs[task], targets[task]) for task in TASKS}
            optimizer.zero_grad()
            sum(losses.values()).backward()
            optimizer.step()
            for task, loss in losses.items():
                totals[task] += loss.item()
        shown = ", ".join(f"{task} {value / len(loader):.3f}" for task, value in totals.items())
        print(f"epoch {epoch}: {shown}")


if __name__ == "__main__":
    main()
