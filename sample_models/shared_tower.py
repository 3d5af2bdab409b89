"""A tower called twice, a tied weight, a frozen layer and writing in place, all in good order.

The report shows both calls of the tower apart, one gradient summed over both, the tied weight
under both of its names, and the frozen layer as frozen rather than as having no gradient.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Matcher(nn.Module):
    """Compares two inputs by the codes that one tower gives them."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(8, 8).requires_grad_(False)
        self.tower = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 8))
        self.first = nn.Linear(8, 8, bias=False)
        self.second = nn.Linear(8, 8, bias=False)
        self.second.weight = self.first.weight
        self.temperature = nn.Parameter(torch.tensor(1.0))

    def encode(self, x: Tensor) -> Tensor:
        """Map `[batch, 8]` to codes of length one."""
        hidden = self.tower(self.features(x))
        hidden = self.second(self.first(hidden).tanh_())
        return functional.normalize(hidden, dim=1)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Map two times `[batch, 8]` to similarities `[batch, batch]`."""
        return self.encode(left) @ self.encode(right).T * self.temperature


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return Matcher()


def build_batch() -> tuple[Tensor, Tensor, Tensor]:
    """Eight inputs, eight noisy copies of them, and which copy belongs to which."""
    generator = torch.Generator().manual_seed(1)
    left = torch.randn(8, 8, generator=generator)
    return left, left + 0.1 * torch.randn(8, 8, generator=generator), torch.arange(8)


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy over the rows of similarities."""
    return functional.cross_entropy(output, target)
