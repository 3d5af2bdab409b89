"""Locked-image tuning: a fixed ViT image tower with a trained projection, and a trained GRU text tower."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import ViTConfig, ViTModel


class LockedImageText(nn.Module):
    def __init__(self, dim=32, joint=16, vocab=40):
        super().__init__()
        config = ViTConfig(hidden_size=dim, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                           image_size=16, patch_size=4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        self.vision = ViTModel(config, add_pooling_layer=False)
        self.vision.requires_grad_(False)
        self.image_proj = nn.Linear(dim, joint)
        self.embed = nn.Embedding(vocab, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.text_proj = nn.Linear(dim, joint)
        self.logit_scale = nn.Parameter(torch.tensor(2.0))

    def encode_image(self, pixels):
        with torch.no_grad():
            feats = self.vision(pixels).last_hidden_state[:, 0]
        feats = self.image_proj(feats)
        return F.normalize(feats, dim=-1)

    def encode_text(self, tokens):
        _, state = self.gru(self.embed(tokens))
        return F.normalize(self.text_proj(state[-1]), dim=-1)

    def forward(self, pixels, tokens):
        return self.logit_scale.exp() * self.encode_image(pixels) @ self.encode_text(tokens).t()


def build_model():
    torch.manual_seed(41)
    return LockedImageText()


def build_batch():
    g = torch.Generator().manual_seed(42)
    return {"pixels": torch.randn(12, 3, 16, 16, generator=g), "tokens": torch.randint(0, 40, (12, 7), generator=g)}


def loss_fn(output, batch):
    target = torch.arange(output.shape[0])
    return 0.5 * (F.cross_entropy(output, target) + F.cross_entropy(output.t(), target))
