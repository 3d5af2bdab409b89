"""Twenty linear layers whose weights are drawn from N(0, 1): the gradient explodes.

On its way back a layer of width 10 multiplies a gradient by about the square root of 10, so at the
output of the first layer it is many orders of magnitude larger than at that of the last.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

LAYERS = 20
WIDTH = 10


class LinearStack(nn.Module):
    """Linear layers and nothing in between."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        for layer in self.layers:
            # With std=WIDTH**-0.5 the stack would be level.
            nn.init.normal_(layer.weight, std=1.0)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, WIDTH]` to the same shape."""
        for layer in self.layers:
            x = layer(x)
        return x


def build_model() -> nn.Module:
    """The stack at its initialisation."""
    torch.manual_seed(0)
    return LinearStack()


def build_batch() -> tuple[Tensor, Tensor]:
    """Eight random inputs and targets."""
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(8, WIDTH, generator=generator),
        torch.randn(8, WIDTH, generator=generator),
    )


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Mean squared error."""
    return functional.mse_loss(output, target)
