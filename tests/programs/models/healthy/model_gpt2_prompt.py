"""Prompt tuning: a small frozen GPT-2, a learned prompt with an MLP encoder, and a new classification head."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import GPT2Config, GPT2Model


class PromptClassifier(nn.Module):
    def __init__(self, n_prompt=5, dim=32, n_classes=3):
        super().__init__()
        config = GPT2Config(vocab_size=60, n_positions=32, n_embd=dim, n_layer=2, n_head=4,
                            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        self.backbone = GPT2Model(config)
        self.backbone.requires_grad_(False)
        self.prompt = nn.Embedding(n_prompt, dim)
        self.prompt_mlp = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, dim))
        self.head = nn.Linear(dim, n_classes)

    def forward(self, input_ids, labels=None):
        tokens = self.backbone.wte(input_ids)
        prompt = self.prompt_mlp(self.prompt.weight)
        prompt = prompt.expand(input_ids.shape[0], -1, -1)
        hidden = self.backbone(inputs_embeds=torch.cat([prompt, tokens], dim=1)).last_hidden_state
        return self.head(hidden[:, -1])


def build_model():
    torch.manual_seed(11)
    return PromptClassifier()


def build_batch():
    g = torch.Generator().manual_seed(12)
    return {"input_ids": torch.randint(0, 60, (16, 10), generator=g),
            "labels": torch.randint(0, 3, (16,), generator=g)}


def loss_fn(output, batch):
    return F.cross_entropy(output, batch["labels"])
