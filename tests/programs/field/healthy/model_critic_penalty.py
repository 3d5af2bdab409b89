from dataclasses import dataclass

import torch
from torch import autograd, nn


@dataclass
class Config:
    width: int = 48
    penalty: float = 10.0
    features: int = 16


class Critic(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        self.net = nn.Sequential(
            nn.Linear(cfg.features, cfg.width),
            nn.LeakyReLU(0.2),
            nn.Linear(cfg.width, cfg.width),
            nn.LeakyReLU(0.2),
            nn.Linear(cfg.width, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


def gradient_penalty(critic, real, fake):
    eps = torch.linspace(0, 1, real.shape[0]).unsqueeze(1)
    mixed = (eps * real + (1 - eps) * fake).requires_grad_(True)
    scores = critic(mixed)
    grads = autograd.grad(
        outputs=scores,
        inputs=mixed,
        grad_outputs=torch.ones_like(scores),
        create_graph=True,
    )[0]
    return ((grads.norm(2, dim=1) - 1) ** 2).mean()


def build_model():
    torch.manual_seed(3)
    return Critic(Config())


def build_batch():
    g = torch.Generator().manual_seed(4)
    real = torch.randn(64, 16, generator=g) * 0.5 + 1.0
    fake = torch.randn(64, 16, generator=g)
    return {"real": real, "fake": fake}


def compute_loss(critic, batch):
    real, fake = batch["real"], batch["fake"]
    wasserstein = critic(fake).mean() - critic(real).mean()
    return wasserstein + critic.cfg.penalty * gradient_penalty(critic, real, fake)
