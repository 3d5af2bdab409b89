import torch
import torch.nn.functional as F
from torch import nn


class PatchEmbedding(nn.Module):
    def __init__(self, size, patch, channels, dim):
        super().__init__()
        self.count = (size // patch) ** 2
        self.project = nn.Conv2d(channels, dim, patch, stride=patch)
        self.norm = nn.LayerNorm(dim)

    def forward(self, images):
        return self.norm(self.project(images).flatten(2).transpose(1, 2))


class TransformerBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.heads = heads
        self.project = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        qkv = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*qkv)
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, size=16, patch=4, dim=32, depth=3, heads=4, classes=5):
        super().__init__()
        self.patches = PatchEmbedding(size, patch, 3, dim)
        self.summary = nn.Parameter(0.02 * torch.randn(1, 1, dim))
        self.position = nn.Parameter(torch.zeros(1, self.patches.count + 1, dim))
        self.blocks = nn.ModuleList(TransformerBlock(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, images):
        x = self.patches(images)
        x = torch.cat([self.summary.expand(len(x), -1, -1), x], dim=1) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))


def build_model():
    torch.manual_seed(40)
    return VisionTransformer()


def build_batch():
    generator = torch.Generator().manual_seed(41)
    return torch.randn(8, 3, 16, 16, generator=generator), torch.randint(
        0, 5, (8,), generator=generator
    )


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
