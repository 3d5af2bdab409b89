"""Tunes a soft prompt and a classifier on a frozen causal language model."""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GPT2Config, GPT2Model


class PromptClassifier(nn.Module):
    def __init__(self, prompt=8, classes=4):
        super().__init__()
        config = GPT2Config(
            vocab_size=300, n_positions=64, n_embd=64, n_layer=12, n_head=4,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )
        self.language = GPT2Model(config).requires_grad_(False)
        self.prompt = nn.Parameter(self.language.wte.weight[:prompt].clone())
        self.head = nn.Linear(64, classes)

    def forward(self, tokens):
        words = self.language.wte(tokens)
        prompt = self.prompt.expand(len(tokens), -1, -1)
        x = torch.cat([prompt, words], dim=1)
        with torch.no_grad():
            states = self.language(inputs_embeds=x).last_hidden_state
        return self.head(states[:, -1])


def build_model():
    torch.manual_seed(107)
    return PromptClassifier()


def build_batch():
    torch.manual_seed(108)
    return torch.randint(0, 300, (6, 24)), torch.randint(0, 4, (6,))


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])


def build_optimizer(model):
    return torch.optim.AdamW([model.prompt, *model.head.parameters()], lr=1e-2)
