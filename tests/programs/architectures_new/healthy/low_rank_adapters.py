"""Adapts a frozen language model with low-rank updates of its attention."""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel


class LowRank(nn.Module):
    def __init__(self, base, rank=4, alpha=8):
        super().__init__()
        self.base = base
        inputs, outputs = base.weight.shape
        self.down = nn.Parameter(torch.randn(inputs, rank) / inputs**0.5)
        self.up = nn.Parameter(torch.zeros(rank, outputs))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.down @ self.up)


def build_model():
    torch.manual_seed(71)
    config = GPT2Config(
        vocab_size=300, n_positions=64, n_embd=64, n_layer=10, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )
    model = GPT2LMHeadModel(config)
    model.requires_grad_(False)
    for block in model.transformer.h:
        block.attn.c_attn = LowRank(block.attn.c_attn)
    return model


def build_batch():
    torch.manual_seed(72)
    return {"input_ids": torch.randint(0, 300, (4, 32))}


def loss_fn(output, batch):
    tokens = batch["input_ids"]
    return F.cross_entropy(output.logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def build_optimizer(model):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)
