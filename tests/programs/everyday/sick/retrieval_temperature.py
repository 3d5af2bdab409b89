"""CLIP-style training of two towers on synthetic pairs."""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    image_dim: int = 48
    text_dim: int = 32
    width: int = 64
    embed: int = 24
    lr: float = 1e-3
    steps: int = 80
    batch: int = 32


def tower(inputs, cfg):
    return nn.Sequential(
        nn.Linear(inputs, cfg.width), nn.GELU(), nn.Linear(cfg.width, cfg.embed)
    )


class TwoTowers(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.image = tower(cfg.image_dim, cfg)
        self.text = tower(cfg.text_dim, cfg)
        self.logit_scale = nn.Parameter(torch.tensor(2.6))

    def forward(self, image, text):
        image = F.normalize(self.image(image), dim=-1)
        text = F.normalize(self.text(text), dim=-1)
        scale = self.logit_scale.exp().item()
        return scale * image @ text.t()


def clip_loss(logits):
    target = torch.arange(len(logits))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2


def main(cfg):
    torch.manual_seed(0)
    to_image = torch.randn(16, cfg.image_dim)
    to_text = torch.randn(16, cfg.text_dim)
    model = TwoTowers(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    for step in range(cfg.steps):
        latent = torch.randn(cfg.batch, 16)
        logits = model(latent @ to_image, latent @ to_text)
        loss = clip_loss(logits)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            top1 = (logits.argmax(1) == torch.arange(cfg.batch)).float().mean()
            print(f"{step:3d} loss {loss.item():.3f} top1 {top1.item():.2f}")


if __name__ == "__main__":
    main(Config())
