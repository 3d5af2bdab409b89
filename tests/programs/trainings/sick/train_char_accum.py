"""Tiny character GPT with gradient accumulation."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

TEXT = ("the quick brown fox jumps over the lazy dog while the slow red hen "
        "walks under the old oak tree and the small cat sleeps on the warm mat ") * 6
CHARS = sorted(set(TEXT))
IDS = torch.tensor([CHARS.index(c) for c in TEXT])


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.ln1(x)).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.ln2(x))


class MiniGPT(nn.Module):
    def __init__(self, vocab, ctx=32, d=32, heads=4, depth=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(depth))
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, idx, targets):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.ln(x)).flatten(0, 1), targets.flatten())


def get_batch(g, size=8, ctx=32):
    at = torch.randint(0, len(IDS) - ctx - 1, (size,), generator=g)
    x = torch.stack([IDS[i:i + ctx] for i in at])
    y = torch.stack([IDS[i + 1:i + ctx + 1] for i in at])
    return x, y


def lr_at(it, peak, warmup, total):
    if it < warmup:
        return peak * (it + 1) / warmup
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * (it - warmup) / (total - warmup))))


def main(max_iters=80, grad_accum=4, peak=1e-1):
    torch.manual_seed(111)
    g = torch.Generator().manual_seed(112)
    model = MiniGPT(len(CHARS))
    optimizer = torch.optim.SGD(model.parameters(), lr=peak, momentum=0.9)
    for it in range(max_iters):
        for group in optimizer.param_groups:
            group["lr"] = lr_at(it, peak, 10, max_iters)
        running = 0.0
        for micro in range(grad_accum):
            optimizer.zero_grad(set_to_none=True)
            loss = model(*get_batch(g)) / grad_accum
            loss.backward()
            running += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if it % 10 == 0:
            print(f"iter {it} loss {running:.4f}")


main()
