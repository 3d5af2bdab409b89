"""A classifier that returns probabilities, trained with a loss that takes logits.

`cross_entropy` applies `log_softmax` to what it is given. The probabilities of six classes lie
within [0, 1], so that the loss never comes near zero.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Topics(nn.Module):
    """Tells the topic of a text from the counts of its words."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(30, 24)
        self.head = nn.Linear(24, 6)

    def forward(self, counts: Tensor) -> Tensor:
        """Map `[batch, 30]` to probabilities `[batch, 6]`."""
        hidden = functional.gelu(self.hidden(counts))
        return self.head(hidden).softmax(dim=-1)  # GS701


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return Topics()


def build_batch() -> tuple[Tensor, Tensor]:
    """Sixty texts of six topics."""
    generator = torch.Generator().manual_seed(1)
    topic = torch.arange(60) % 6
    rates = torch.rand(6, 30, generator=generator)
    return torch.poisson(rates[topic], generator=generator), topic


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy, which normalises once more."""
    return functional.cross_entropy(output, target)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
