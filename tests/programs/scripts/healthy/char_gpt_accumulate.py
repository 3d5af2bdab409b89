import math

import torch
import torch.nn as nn
import torch.nn.functional as F

config = dict(n_layer=2, n_head=4, n_embd=32, block=16, batch=8, accumulate=4, iters=100, lr=5e-3, warmup=10)
text = ("the quick brown fox jumps over the lazy dog and runs away from the old barking hound. " * 30)
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
data = torch.tensor([stoi[c] for c in text])


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c_attn = nn.Linear(c["n_embd"], 3 * c["n_embd"])
        self.c_proj = nn.Linear(c["n_embd"], c["n_embd"])
        self.n_head = c["n_head"]

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.c_attn(x).split(d, dim=2)
        q, k, v = (y.view(b, t, self.n_head, -1).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(c["n_embd"]), nn.LayerNorm(c["n_embd"])
        self.attn = Attention(c)
        self.mlp = nn.Sequential(nn.Linear(c["n_embd"], 4 * c["n_embd"]), nn.GELU(), nn.Linear(4 * c["n_embd"], c["n_embd"]))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wte = nn.Embedding(len(chars), c["n_embd"])
        self.wpe = nn.Embedding(c["block"], c["n_embd"])
        self.h = nn.ModuleList(Block(c) for _ in range(c["n_layer"]))
        self.ln_f = nn.LayerNorm(c["n_embd"])
        self.lm_head = nn.Linear(c["n_embd"], len(chars), bias=False)
        self.wte.weight = self.lm_head.weight
        for table in (self.lm_head, self.wpe):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def get_batch(c):
    start = torch.randint(0, len(data) - c["block"] - 1, (c["batch"],))
    x = torch.stack([data[i : i + c["block"]] for i in start])
    y = torch.stack([data[i + 1 : i + 1 + c["block"]] for i in start])
    return x, y


def get_lr(it, c):
    if it < c["warmup"]:
        return c["lr"] * (it + 1) / c["warmup"]
    ratio = (it - c["warmup"]) / (c["iters"] - c["warmup"])
    return 0.1 * c["lr"] + 0.45 * c["lr"] * (1 + math.cos(math.pi * ratio))


def main():
    torch.manual_seed(1337)
    model = GPT(config)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=config["lr"], betas=(0.9, 0.95))
    for it in range(config["iters"]):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(it, config)
        optimizer.zero_grad(set_to_none=True)
        for micro in range(config["accumulate"]):
            x, y = get_batch(config)
            loss = model(x, y) / config["accumulate"]
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if it % 25 == 0:
            print(f"iter {it}: loss {loss.item() * config['accumulate']:.3f}")


if __name__ == "__main__":
    main()
