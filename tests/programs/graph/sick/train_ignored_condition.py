"""A conditional generator of two-dimensional points, trained by matching moments."""

import torch
from torch import nn


class Generator(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.classes = classes
        self.body = nn.Sequential(nn.Linear(6 + classes, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, noise, label):
        condition = torch.zeros(len(noise), self.classes)
        return self.body(torch.cat([noise, condition], dim=1))


def main():
    torch.manual_seed(0)
    centres = 2 * torch.randn(4, 2)
    model = Generator()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(40):
        label = torch.arange(64) % 4
        point = model(torch.randn(64, 6), label)
        error = [(point[label == one].mean(0) - centres[one]).pow(2).sum() for one in range(4)]
        loss = torch.stack(error).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, round(loss.item(), 3))


if __name__ == "__main__":
    main()
