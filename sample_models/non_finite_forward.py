"""An entropy that is NaN as soon as one probability is exactly zero.

Entropy is written as p times log p. A mixture weight that rounds to zero makes it zero times minus
infinity, and from then on everything is NaN.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Mixture(nn.Module):
    """Classifies by a mixture of sixteen prototypes."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(8, 16)
        self.prototypes = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map `[batch, 8]` to logits `[batch, 4]` and the entropy of the mixture, a scalar."""
        weights = functional.relu(self.score(x))
        weights = weights / weights.sum(dim=-1, keepdim=True)
        # torch.special.entr(weights) is 0 where a weight is.
        entropy = -(weights * torch.log(weights)).sum(dim=-1).mean()  # GS104
        return self.prototypes(weights), entropy


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return Mixture()


def build_batch() -> tuple[Tensor, Tensor]:
    """Random inputs of four classes."""
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    return x, torch.arange(64) % 4


def loss_fn(output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    """Cross-entropy, and a bonus for mixtures that are spread out."""
    logits, entropy = output
    return functional.cross_entropy(logits, target) - 0.1 * entropy
