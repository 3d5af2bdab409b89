import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiScale(nn.Module):
    def __init__(self, c=8, scales=(1, 2, 4)):
        super().__init__()
        self.stem = nn.Conv2d(3, c, 3, padding=1)
        self.branches = nn.ModuleDict({f"s{s}": nn.Conv2d(c, c, 3, padding=s, dilation=s) for s in scales})
        self.fuse = nn.Conv2d(c * len(scales), c, 1)
        self.head = nn.Linear(c, 5)

    def forward(self, x):
        x = F.relu(self.stem(x))
        x = torch.cat([F.relu(b(x)) for b in self.branches.values()], dim=1)
        return self.head(F.relu(self.fuse(x)).mean((2, 3)))


def build_model():
    torch.manual_seed(0)
    return MultiScale()


def build_batch():
    torch.manual_seed(1)
    return torch.randn(6, 3, 16, 16), torch.randint(0, 5, (6,))


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
