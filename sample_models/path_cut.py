"""A recurrent cell whose state is detached in every time step.

The cell learns from the last step alone, and never what to remember.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Counter(nn.Module):
    """Counts the ones of a sequence."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.cell = nn.GRUCell(1, width)
        self.head = nn.Linear(width, 1)
        self.width = width

    def forward(self, bits: Tensor) -> Tensor:
        """Return the share of ones, `[batch, 1]`, of bits `[batch, time]`."""
        state = bits.new_zeros(len(bits), self.width)
        for bit in bits.unbind(1):
            state = self.cell(bit.unsqueeze(1), state.detach())  # GS216
        return self.head(state)


def build_model() -> nn.Module:
    """A counter."""
    torch.manual_seed(0)
    return Counter()


def build_batch() -> tuple[Tensor, Tensor]:
    """Forty-eight sequences of eight bits, and their shares of ones."""
    generator = torch.Generator().manual_seed(1)
    bits = torch.randint(2, (48, 8), generator=generator).float()
    return bits, bits.mean(1, keepdim=True)


def loss_fn(output: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The squared error."""
    return functional.mse_loss(output, batch[1])


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
