"""A recurrent classifier that trains well: it says whether a sequence sums to more than zero.

The recurrent cell is called once a time step, so the report shows the gradient along time.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

STEPS = 12
HIDDEN = 32


class SumClassifier(nn.Module):
    """A GRU cell read out after the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, HIDDEN)
        self.head = nn.Linear(HIDDEN, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map sequences `[batch, time, 4]` to logits `[batch]`."""
        state = x.new_zeros(x.shape[0], HIDDEN)
        for step in x.unbind(dim=1):
            state = self.cell(step, state)
        return self.head(state).squeeze(1)


def build_model() -> nn.Module:
    """The model, its recurrent weights orthogonal, which lets gradients last through time."""
    torch.manual_seed(0)
    model = SumClassifier()
    for gate in model.cell.weight_hh.chunk(3):
        nn.init.orthogonal_(gate)
    return model


def build_batch() -> tuple[Tensor, Tensor]:
    """Sixteen sequences, and 1 where the sum is positive, else 0."""
    x = torch.randn(16, STEPS, 4, generator=torch.Generator().manual_seed(1))
    return x, (x.sum(dim=(1, 2)) > 0).float()


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Binary cross-entropy of the logits."""
    return functional.binary_cross_entropy_with_logits(output, target)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Adam over every parameter."""
    return torch.optim.Adam(model.parameters(), lr=1e-3)
