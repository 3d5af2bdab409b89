"""A segmentation net whose auxiliary head was forgotten in the loss.

The head runs and its output is returned, and the loss takes only the main output: the head never
learns, and DistributedDataParallel would stop with an error.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Segmenter(nn.Module):
    """Labels every pixel, twice: from the last features and from early ones."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GELU())
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GELU())
        self.head = nn.Conv2d(8, 3, 1)
        self.early_head = nn.Conv2d(8, 3, 1)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        """Map `[batch, 1, height, width]` to logits `[batch, 3, height, width]`."""
        early = self.stem(image)
        return {"out": self.head(self.body(early)), "early": self.early_head(early)}


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return Segmenter()


def build_batch() -> tuple[Tensor, Tensor]:
    """Four images whose pixels are labelled by their brightness."""
    image = torch.randn(4, 1, 12, 12, generator=torch.Generator().manual_seed(1))
    return image, (image[:, 0] > 0).long() + (image[:, 0] > 1).long()


def loss_fn(output: dict[str, Tensor], target: Tensor) -> Tensor:
    """Cross-entropy of the pixels, of the main output alone."""
    return functional.cross_entropy(output["out"], target)  # GS203


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter, those of the early head among them."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
