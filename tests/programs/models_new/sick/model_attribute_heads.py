import torch
import torch.nn as nn
import torch.nn.functional as F

ATTRIBUTES = {"colour": 4, "shape": 3, "size": 2}


def make_head(width, classes):
    layer = nn.Linear(width, classes)
    return lambda h: layer(F.relu(h))


class AttributeNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(20, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, width))
        self.heads = [make_head(width, n) for n in ATTRIBUTES.values()]

    def forward(self, x):
        h = self.trunk(x)
        return [head(h) for head in self.heads]


def build_model():
    torch.manual_seed(71)
    return AttributeNet()


def build_batch():
    g = torch.Generator().manual_seed(72)
    x = torch.randn(50, 20, generator=g)
    return x, torch.stack([x[:, :4].argmax(1), x[:, 4:7].argmax(1), x[:, 7:9].argmax(1)])


def loss_fn(output, batch):
    return sum(F.cross_entropy(o, t) for o, t in zip(output, batch[1]))
