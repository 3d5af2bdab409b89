import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Config:
    vocab = 32
    block = 16
    dim = 32
    heads = 4
    layers = 2
    lr = 3e-3
    warmup = 50
    steps = 100
    batch = 24


class GPT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.tok = nn.Embedding(c.vocab, c.dim)
        self.pos = nn.Parameter(torch.zeros(c.block, c.dim))
        layer = nn.TransformerEncoderLayer(
            c.dim, c.heads, 4 * c.dim, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, c.layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(c.dim)
        self.head = nn.Linear(c.dim, c.vocab)
        mask = torch.triu(torch.full((c.block, c.block), float("-inf")), diagonal=1)
        self.register_buffer("mask", mask)

    def forward(self, ids):
        x = self.tok(ids) + self.pos[: ids.shape[1]]
        return self.head(self.norm(self.layers(x, mask=self.mask)))


def lr_factor(step):
    if step < Config.warmup:
        return step // Config.warmup
    progress = (step - Config.warmup) / max(1, Config.steps - Config.warmup)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * progress))


def sample():
    start = torch.randint(Config.vocab, (Config.batch, 1))
    stride = torch.randint(1, 3, (Config.batch, 1))
    return (start + stride * torch.arange(Config.block + 1)) % Config.vocab


torch.manual_seed(2024)
model = GPT(Config)
optimizer = torch.optim.AdamW(model.parameters(), lr=Config.lr, betas=(0.9, 0.95))
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_factor)
for step in range(Config.steps):
    ids = sample()
    logits = model(ids[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 20 == 0:
        print(f"{step:4d} {loss.item():.3f} lr {scheduler.get_last_lr()[0]:.2e}")
