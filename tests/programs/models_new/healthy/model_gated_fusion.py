import torch
import torch.nn as nn


class GatedFusion(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.left, self.right = nn.Linear(6, d), nn.Linear(9, d)
        self.gate = nn.Linear(2 * d, d)
        self.out = nn.Linear(d, 2)

    def forward(self, a, b, mask):
        a, b = self.left(a), self.right(b)
        g = torch.sigmoid(self.gate(torch.cat([a, b], 1)))
        g = g * mask
        return self.out(torch.relu(g * a + (1 - g) * b))


def build_model():
    torch.manual_seed(301)
    return GatedFusion()


def build_batch():
    g = torch.Generator().manual_seed(302)
    a, b = torch.randn(32, 6, generator=g), torch.randn(32, 9, generator=g)
    mask = (torch.rand(32, 1, generator=g) > 0.2).float()
    return a, b, mask, (a[:, 0] * mask[:, 0] + b[:, 0] > 0).long()


def loss_fn(output, batch):
    return nn.functional.cross_entropy(output, batch[3])
