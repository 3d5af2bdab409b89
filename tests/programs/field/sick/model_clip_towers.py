import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def tower(n_in, dim):
    return nn.Sequential(nn.Linear(n_in, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, dim))


class TwoTowers(nn.Module):
    def __init__(self, image_dim=48, text_dim=30, dim=24):
        super().__init__()
        self.image = tower(image_dim, dim)
        self.text = tower(text_dim, dim)
        self.logit_scale = nn.Parameter(torch.tensor(np.log(1 / 0.07))).float()

    def forward(self, images, texts):
        a = F.normalize(self.image(images), dim=-1)
        b = F.normalize(self.text(texts), dim=-1)
        scale = self.logit_scale.exp().clamp(max=100)
        logits = scale * a @ b.t()
        return logits, logits.t()


def build_model():
    torch.manual_seed(71)
    return TwoTowers()


def build_batch():
    g = torch.Generator().manual_seed(72)
    latent = torch.randn(32, 10, generator=g)
    images = latent @ torch.randn(10, 48, generator=g)
    texts = latent @ torch.randn(10, 30, generator=g)
    return images, texts


def compute_loss(model, batch):
    per_image, per_text = model(*batch)
    labels = torch.arange(len(per_image))
    return (F.cross_entropy(per_image, labels) + F.cross_entropy(per_text, labels)) / 2
