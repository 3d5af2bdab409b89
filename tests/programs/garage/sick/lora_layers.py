import math

import torch
from torch import nn
import torch.nn.functional as F


class LoRALinear(nn.Module):
    def __init__(self, base, rank=4, alpha=8.0, dropout=0.05):
        super().__init__()
        self.base = base
        for p in self.base.parameters():
            p.requires_grad = False
        self.down = nn.Parameter(torch.empty(rank, base.in_features))
        self.up = nn.Parameter(torch.empty(base.out_features, rank))
        self.scale = alpha / rank
        self.dropout = nn.Dropout(dropout)
        self.reset_adapter()

    def reset_adapter(self):
        nn.init.zeros_(self.down)
        nn.init.zeros_(self.up)

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(self.dropout(x), self.down), self.up)


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x):
        h = self.norm1(x)
        mixed = F.scaled_dot_product_attention(*(self.split(f(h)) for f in (self.q, self.k, self.v)), is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class LM(nn.Module):
    def __init__(self, vocab=32, dim=32, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim, 4) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def inject(model, names=("q", "v")):
    for p in model.parameters():
        p.requires_grad = False
    for layer in model.layers:
        for name in names:
            setattr(layer, name, LoRALinear(getattr(layer, name)))
    for p in (*model.norm.parameters(), *model.head.parameters()):
        p.requires_grad = True


def sequences(count, stride, length=16, vocab=32):
    start = torch.randint(0, vocab, (count, 1))
    return (start + stride * torch.arange(length)) % vocab


def fit(model, parameters, stride, steps, rate):
    optimizer = torch.optim.AdamW(parameters, lr=rate)
    for step in range(steps):
        ids = sequences(16, stride)
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(20)
    model = LM()
    print("base", fit(model, model.parameters(), stride=1, steps=30, rate=3e-3))
    inject(model)
    trainable = [p for p in model.parameters() if p.requires_grad]
    print("adapted", fit(model, trainable, stride=3, steps=30, rate=2e-3))
