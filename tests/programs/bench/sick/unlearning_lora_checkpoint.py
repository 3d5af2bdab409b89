"""Fine-tune low-rank adapters of a frozen transformer, with activation checkpointing."""

import warnings

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

warnings.filterwarnings("ignore")


class LoRALinear(nn.Module):
    def __init__(self, base, r=4):
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.randn(r, base.in_features) * 0.02)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))

    def forward(self, x):
        return self.base(x) + x @ self.lora_A.T @ self.lora_B.T


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.qkv = LoRALinear(nn.Linear(dim, 3 * dim))
        self.proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.mlp(x)


class CausalLM(nn.Module):
    def __init__(self, vocab=50, dim=32, layers=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(layers))
        self.lm_head = nn.Linear(dim, vocab, bias=False)
        self.gradient_checkpointing = True

    def enable_input_require_grads(self):
        self.embed.register_forward_hook(lambda module, args, output: output.requires_grad_(True))

    def forward(self, ids):
        h = self.embed(ids)
        for block in self.blocks:
            if self.gradient_checkpointing and self.training:
                h = checkpoint(block, h, use_reentrant=True)
            else:
                h = block(h)
        return self.lm_head(h)


def freeze_base(model):
    for name, p in model.named_parameters():
        p.requires_grad = "lora_" in name or name.startswith("lm_head")


def main():
    torch.manual_seed(0)
    model = CausalLM()
    freeze_base(model)
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=5e-3)
    for step in range(15):
        ids = (torch.randint(50, (4, 1)) + torch.arange(13)) % 50
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 50), ids[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(step, round(loss.item(), 4))


main()
