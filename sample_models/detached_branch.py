"""Two branches of which one never learns: `detach()` cuts it off from the loss.

The branch was detached to be logged, and the detached tensor went on into the sum. Its parameters
get no gradient at all, which is not the same as a gradient of zero.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class TwoBranches(nn.Module):
    """Adds what two branches say of one input."""

    def __init__(self) -> None:
        super().__init__()
        self.coarse = nn.Linear(8, 4)
        self.fine = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
        self.last_fine: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, 8]` to logits `[batch, 4]`."""
        coarse = self.coarse(x)
        fine = self.fine(x).detach()
        self.last_fine = fine
        return coarse + fine


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return TwoBranches()


def build_batch() -> tuple[Tensor, Tensor]:
    """Sixteen random inputs of four classes."""
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))
    return x, torch.arange(16) % 4


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the logits."""
    return functional.cross_entropy(output, target)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter, the cut ones among them."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
