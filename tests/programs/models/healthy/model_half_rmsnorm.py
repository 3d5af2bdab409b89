"""Bag-of-tokens classifier in float16 with an RMS norm over padded embeddings."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-3):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps)


class HalfClassifier(nn.Module):
    def __init__(self, vocab=40, dim=16, n_classes=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.norm = RMSNorm(dim)
        self.fc1 = nn.Linear(dim, 32)
        self.fc2 = nn.Linear(32, n_classes)

    def forward(self, tokens):
        keep = (tokens != 0).unsqueeze(-1).to(self.embed.weight.dtype)
        h = F.relu(self.fc1(self.norm(self.embed(tokens))))
        h = (h * keep).sum(dim=1) / keep.sum(dim=1)
        return self.fc2(h)


def build_model():
    torch.manual_seed(281)
    return HalfClassifier().half()


def build_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.05)


def build_batch():
    g = torch.Generator().manual_seed(282)
    tokens = torch.randint(1, 40, (16, 9), generator=g)
    tokens[::2, 6:] = 0
    return tokens, torch.randint(0, 3, (16,), generator=g)


def loss_fn(output, batch):
    return F.cross_entropy(output.float(), batch[1])
