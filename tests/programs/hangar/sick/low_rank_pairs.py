import re

import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D


class LowRank(nn.Module):
    def __init__(self, base, rank=4, alpha=8.0):
        super().__init__()
        self.base = base
        inputs, outputs = base.weight.shape
        self.down_0 = nn.Parameter(torch.randn(inputs, rank) / inputs**0.5)
        self.up_1 = nn.Parameter(torch.zeros(rank, outputs))
        self.scaling = alpha / rank

    def forward(self, hidden):
        return self.base(hidden) + hidden @ self.down_0 @ self.up_1 * self.scaling


def inject(module, names=("c_attn",)):
    for name, child in list(module.named_children()):
        if isinstance(child, Conv1D) and name in names:
            setattr(module, name, LowRank(child))
        else:
            inject(child, names)
    return module


TRAINABLE = re.compile(r"\.(down|up)_0$")


def mark_trainable(model):
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(TRAINABLE.search(name) is not None)
    return model


def build_model():
    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=80, n_positions=32, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    return mark_trainable(inject(GPT2LMHeadModel(config)))


def build_batch():
    generator = torch.Generator().manual_seed(9)
    start = torch.randint(0, 80, (8, 1), generator=generator)
    tokens = (start + 3 * torch.arange(20)) % 80
    return {"input_ids": tokens}


def loss_fn(output, batch):
    logits, tokens = output.logits[:, :-1], batch["input_ids"][:, 1:]
    return F.cross_entropy(logits.reshape(-1, logits.size(-1)), tokens.reshape(-1))
