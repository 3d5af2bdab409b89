"""LoRA on a small frozen Llama with gradient checkpointing; a linear score head is trained as well."""
import functools

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from transformers import LlamaConfig, LlamaModel


class LoRALinear(nn.Module):
    def __init__(self, base, rank=4, alpha=8.0):
        super().__init__()
        self.base = base
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.lora_a), self.lora_b)


class Scorer(nn.Module):
    def __init__(self, dim=32, n_classes=3):
        super().__init__()
        config = LlamaConfig(vocab_size=64, hidden_size=dim, intermediate_size=64, num_hidden_layers=2,
                             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32, use_cache=False)
        self.model = LlamaModel(config)
        self.model.requires_grad_(False)
        for layer in self.model.layers:
            layer.self_attn.q_proj = LoRALinear(layer.self_attn.q_proj)
            layer.self_attn.v_proj = LoRALinear(layer.self_attn.v_proj)
        self.score = nn.Linear(dim, n_classes)

    def forward(self, input_ids, labels=None):
        h = self.model.embed_tokens(input_ids)
        rope = self.model.rotary_emb(h, torch.arange(input_ids.shape[1]).unsqueeze(0))
        for layer in self.model.layers:
            h = checkpoint(functools.partial(layer, position_embeddings=rope), h, use_reentrant=False)
        return self.score(self.model.norm(h)[:, -1])


def build_model():
    torch.manual_seed(51)
    return Scorer().train()


def build_batch():
    g = torch.Generator().manual_seed(52)
    return {"input_ids": torch.randint(0, 64, (12, 10), generator=g), "labels": torch.randint(0, 3, (12,), generator=g)}


def loss_fn(output, batch):
    return F.cross_entropy(output, batch["labels"])
