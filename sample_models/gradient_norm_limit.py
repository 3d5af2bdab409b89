"""A regression whose gradients are larger than the limit that its owners have agreed on.

Someone has made the loss a sum in place of a mean. No rule can call that wrong, but the norm is 64
times what it was, and the step that is right for a mean is not for this. Check it with

    gradscope check sample_models/gradient_norm_limit.py --max-grad-norm 10
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Regression(nn.Module):
    """Two layers that map `[batch, 12]` to `[batch, 1]`."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(12, 32)
        self.head = nn.Linear(32, 1)  # GS113

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, 12]` to `[batch, 1]`."""
        return self.head(functional.gelu(self.hidden(x)))


def build_model() -> nn.Module:
    """The network as torch initialises it."""
    return Regression()


def build_batch() -> tuple[Tensor, Tensor]:
    """Points, and a linear function of them."""
    x = torch.randn(64, 12)
    return x, x[:, :3].sum(dim=1, keepdim=True)


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Squared error; `reduction="mean"`, the default, would not grow with the batch."""
    return functional.mse_loss(output, target, reduction="sum")
