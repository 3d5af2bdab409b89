import torch
import torch.nn as nn
import torch.nn.functional as F


class SwiGLU(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w1, self.w2, self.w3 = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)

    def forward(self, x):
        return self.w3(F.silu(self.w1(x)) * self.w2(x))


class Decoder(nn.Module):
    def __init__(self, vocab=48, d=32, depth=6):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.attn_norms = nn.ModuleList(nn.RMSNorm(d) for _ in range(depth))
        self.mlp_norms = nn.ModuleList(nn.RMSNorm(d) for _ in range(depth))
        self.qkv = nn.ModuleList(nn.Linear(d, 3 * d, bias=False) for _ in range(depth))
        self.proj = nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(depth))
        self.mlps = nn.ModuleList(SwiGLU(d) for _ in range(depth))
        self.norm = nn.RMSNorm(d)
        self.out = nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for n1, n2, qkv, proj, mlp in zip(self.attn_norms, self.mlp_norms, self.qkv, self.proj, self.mlps):
            q, k, v = qkv(n1(x)).unsqueeze(1).chunk(3, -1)
            x = x + proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1))
            x = x + mlp(n2(x))
        return self.out(self.norm(x))


def batches(n):
    for _ in range(n):
        a, b = torch.randint(1, 7, (8, 1)), torch.randint(0, 48, (8, 1))
        yield (b + a * torch.arange(13)) % 48


def main():
    torch.manual_seed(50)
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, betas=(0.9, 0.95), weight_decay=0.0)
    for i, ids in enumerate(batches(100)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(ids[:, :-1]).float()
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if i % 20 == 0:
            print(i, round(loss.item(), 3))


main()
