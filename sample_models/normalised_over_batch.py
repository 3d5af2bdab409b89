"""Encoders of images and captions, whose vectors are normalised over the batch.

Each feature gets unit length over the examples, so that the products are no cosines.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Encoders(nn.Module):
    """Maps images and captions to vectors, and those to similarities."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 16))
        self.caption = nn.Sequential(nn.Linear(24, 32), nn.GELU(), nn.Linear(32, 16))
        self.log_scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, images: Tensor, captions: Tensor) -> Tensor:
        """Map `[batch, 32]` and `[batch, 24]` to similarities `[batch, batch]`."""
        image, caption = self.image(images), self.caption(captions)
        image = image / image.norm(dim=0, keepdim=True)  # GS726
        caption = caption / caption.norm(dim=0, keepdim=True)
        return self.log_scale.exp() * image @ caption.T


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return Encoders()


def build_batch() -> tuple[Tensor, Tensor]:
    """Sixteen pairs that describe the same things."""
    generator = torch.Generator().manual_seed(1)
    things = torch.randn(16, 8, generator=generator)
    images = things @ torch.randn(8, 32, generator=generator)
    return images, things @ torch.randn(8, 24, generator=generator)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Contrastive loss."""
    similarities = model(*batch)
    pairs = torch.arange(len(similarities))
    of_images = functional.cross_entropy(similarities, pairs)
    of_captions = functional.cross_entropy(similarities.T, pairs)
    return (of_images + of_captions) / 2


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
