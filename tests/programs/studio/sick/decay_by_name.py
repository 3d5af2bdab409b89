"""Pretrain a tiny GPT with grouped weight decay."""

import torch
from torch import nn
from torch.nn import functional as F

CONFIG = {"vocab": 32, "dim": 32, "context": 16, "weight_decay": 0.5, "lr": 1e-2, "steps": 60}


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        q, k, v = self.qkv(self.ln_1(x)).chunk(3, dim=-1)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab, dim, context):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(context, dim)
        self.block = Block(dim)
        self.ln_f = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        return self.head(self.ln_f(self.block(x)))


def configure_optimizer(model, cfg):
    no_decay = ["bias", "LayerNorm"]
    named = list(model.named_parameters())
    groups = [
        {
            "params": [p for n, p in named if not any(part in n for part in no_decay)],
            "weight_decay": cfg["weight_decay"],
        },
        {"params": [p for n, p in named if any(part in n for part in no_decay)], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=cfg["lr"], betas=(0.9, 0.95))


def batch(size, context, vocab):
    start = torch.randint(0, vocab, (size, 1))
    stride = torch.randint(1, 4, (size, 1))
    ids = (start + stride * torch.arange(context + 1)) % vocab
    return ids[:, :-1], ids[:, 1:]


def main():
    torch.manual_seed(0)
    model = GPT(CONFIG["vocab"], CONFIG["dim"], CONFIG["context"])
    optimizer = configure_optimizer(model, CONFIG)
    for step in range(CONFIG["steps"]):
        x, y = batch(32, CONFIG["context"], CONFIG["vocab"])
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item(), model.ln_f.weight.mean().item())


if __name__ == "__main__":
    main()
