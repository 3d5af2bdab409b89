"""Fine-tuning a text pair scorer in low precision."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class PairScorer(nn.Module):
    def __init__(self, dim=32, width=96):
        super().__init__()
        self.proj = nn.Sequential(nn.Linear(dim, width), nn.GELU(), nn.LayerNorm(width))
        self.score = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, a, b):
        u, v = self.proj(a), self.proj(b)
        return self.score(torch.cat([u * v, (u - v).abs()], dim=-1)).squeeze(-1)


def pairs(n, g, rot):
    a = torch.randn(n, 32, generator=g)
    match = torch.rand(n, generator=g) < 0.5
    other = torch.randn(n, 32, generator=g)
    b = torch.where(match[:, None], a @ rot + 0.3 * other, other)
    return a, b, match.float()


def finetune(model, g, rot, steps, lr):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    dtype = next(model.parameters()).dtype
    for step in range(steps):
        a, b, y = pairs(128, g, rot)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(a.to(dtype), b.to(dtype))
        loss = F.binary_cross_entropy_with_logits(logits.float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"lr {lr:g} step {step} loss {loss.item():.4f}")


def main():
    torch.manual_seed(391)
    g = torch.Generator().manual_seed(392)
    eye = torch.eye(32)
    model = PairScorer()
    model = model.to(torch.bfloat16)
    finetune(model, g, eye, steps=150, lr=1e-4)


main()
