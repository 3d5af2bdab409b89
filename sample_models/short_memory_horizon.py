"""An LSTM that is to classify sequences of sixty steps by its last output.

At torch's initialisation its forget gates are half open: what the first steps said is gone by then,
and so is the gradient on its way back to them.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

STEPS = 60
FEATURES = 6


class SequenceClassifier(nn.Module):
    """An LSTM, and a linear layer on its last output."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(FEATURES, 32, batch_first=True)  # GS112
        self.head = nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Map sequences `[batch, STEPS, FEATURES]` to logits `[batch, 2]`."""
        outputs, _ = self.lstm(x)
        return self.head(outputs[:, -1])


def build_model() -> nn.Module:
    """The classifier at its initialisation."""
    torch.manual_seed(0)
    return SequenceClassifier()


def build_batch() -> tuple[Tensor, Tensor]:
    """Sixteen sequences, of class 1 where they begin above zero."""
    x = torch.randn(16, STEPS, FEATURES, generator=torch.Generator().manual_seed(1))
    return x, (x[:, 0, 0] > 0).long()


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the logits."""
    return functional.cross_entropy(output, target)
