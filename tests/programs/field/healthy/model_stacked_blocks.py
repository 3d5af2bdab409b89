import torch
import torch.nn.functional as F
from torch import nn

CONFIG = {"dim": 32, "depth": 4, "patch": 4, "classes": 6}


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.token_mix = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.norm2 = nn.LayerNorm(dim)
        self.channel_mix = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.token_mix(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel_mix(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, size, dim, depth, patch, classes):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, patch, patch)
        tokens = (size // patch) ** 2
        self.blocks = nn.Sequential(*[MixerBlock(tokens, dim) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, images):
        x = self.embed(images).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


def build_model():
    torch.manual_seed(75)
    return Mixer(16, **CONFIG)


def build_batch():
    g = torch.Generator().manual_seed(76)
    y = torch.randint(0, 6, (16,), generator=g)
    x = torch.randn(16, 3, 16, 16, generator=g) + 0.5 * torch.sin(y.view(-1, 1, 1, 1) * torch.arange(16.0))
    return x, y


def loss_fn(output, target):
    return F.cross_entropy(output, target)
