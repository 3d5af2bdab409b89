import torch
import torch.nn as nn


class ReZeroBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.alpha = nn.Parameter(torch.full((), 0.2))

    def forward(self, x):
        y = self.fc2(torch.relu(self.fc1(x)))
        return x + self.alpha * y


def build_model():
    torch.manual_seed(391)
    return nn.Sequential(nn.Linear(9, 20), *[ReZeroBlock(20) for _ in range(4)], nn.Linear(20, 3))


def build_batch():
    g = torch.Generator().manual_seed(392)
    x = torch.randn(50, 9, generator=g)
    return x, x[:, :3].abs().argmax(1)


def loss_fn(output, batch):
    return nn.functional.cross_entropy(output, batch[1])
