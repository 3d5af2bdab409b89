import torch
import torch.nn as nn


class AttentionMIL(nn.Module):
    """Bags of instances, label of the bag."""

    def __init__(self, d=10, h=24):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(d, h), nn.ReLU())
        self.attention = nn.Sequential(nn.Linear(h, 12), nn.Tanh(), nn.Linear(12, 1))
        self.classify = nn.Linear(h, 1)

    def forward(self, bag):
        h = self.embed(bag)
        a = self.attention(h)
        a = torch.softmax(a, dim=-1)
        return self.classify((a * h).sum(dim=1)).squeeze(-1)


def build_model():
    torch.manual_seed(331)
    return AttentionMIL()


def build_batch():
    g = torch.Generator().manual_seed(332)
    bags = torch.randn(40, 6, 10, generator=g)
    return bags, (bags[:, :, 0].amax(1) > 1.2).float()


def loss_fn(output, batch):
    return nn.functional.binary_cross_entropy_with_logits(output, batch[1])
