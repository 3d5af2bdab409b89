"""A critic of images whose gradient penalty takes a norm per pixel.

Inspect it with `gradscope inspect sample_models/penalty_of_parts.py`.
"""

import torch
from torch import Tensor, nn


def build_model() -> nn.Module:
    """Return a critic with fixed weights."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(8 * 36, 1)
    )


def build_batch() -> dict[str, Tensor]:
    """Return real and generated images."""
    generator = torch.Generator().manual_seed(1)
    real, fake = torch.randn(2, 8, 3, 6, 6, generator=generator)
    return {"real": real, "fake": fake}


def compute_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Return the Wasserstein loss of the critic, with the gradient penalty."""
    mixed = ((batch["real"] + batch["fake"]) / 2).requires_grad_()
    (gradient,) = torch.autograd.grad(model(mixed).sum(), mixed, create_graph=True)
    penalty = (gradient.norm(2, dim=1) - 1).square().mean()  # GS712
    return model(batch["fake"]).mean() - model(batch["real"]).mean() + 10 * penalty
