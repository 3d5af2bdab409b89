"""A stack of blocks that never learns: the blocks are kept in a plain list.

The list is no module, so that `parameters()`, `state_dict()` and the optimizer know nothing of the
blocks. Backward gives them gradients all the same.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Adds to its input what a linear layer makes of it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, width]` to `[batch, width]`."""
        return x + functional.gelu(self.linear(self.norm(x)))


class Stack(nn.Module):
    """A classifier of residual blocks."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.stem = nn.Linear(12, 24)
        self.blocks = [Block(24) for _ in range(depth)]  # GS207
        self.head = nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, 12]` to logits `[batch, 4]`."""
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return Stack(depth=3)


def build_batch() -> tuple[Tensor, Tensor]:
    """Thirty-two random inputs of four classes."""
    x = torch.randn(32, 12, generator=torch.Generator().manual_seed(1))
    return x, torch.arange(32) % 4


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the logits."""
    return functional.cross_entropy(output, target)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter that the model gives."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
