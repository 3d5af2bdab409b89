"""Fine-tuning with a small rate for the trunk and a large one for the head."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.trunk(x))


def data(count=240):
    generator = torch.Generator().manual_seed(4)
    centres = torch.randn(3, 10, generator=generator)
    label = torch.randint(0, 3, (count,), generator=generator)
    return centres[label] + 0.7 * torch.randn(count, 10, generator=generator), label


def fit(model, x, y, epochs=6):
    slow = torch.optim.Adam(model.parameters(), lr=1e-4)
    fast = torch.optim.Adam(model.head.parameters(), lr=1e-2)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        order = torch.randperm(len(x))
        for index in order.split(24):
            slow.zero_grad()
            fast.zero_grad()
            loss = criterion(model(x[index]), y[index])
            loss.backward()
            slow.step()
            fast.step()
        print(f"epoch {epoch} loss {loss.item():.3f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    fit(Net(), *data())
