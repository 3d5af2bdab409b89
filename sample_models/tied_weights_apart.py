"""A language model whose output layer shares the embedding's numbers, but not its parameter.

Assigning `.data` leaves two parameters over the same memory: Adam steps the same weights twice,
each time with a part of their gradient.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, WIDTH = 40, 16


class LanguageModel(nn.Module):
    """Predicts the next token of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.body = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.3)
        self.head.weight.data = self.embedding.weight.data  # GS213

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens `[batch, time]` to logits `[batch, time, vocabulary]`."""
        hidden, _ = self.body(self.embedding(tokens))
        return self.head(hidden)


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return LanguageModel()


def build_batch() -> tuple[Tensor, Tensor]:
    """Eight sequences that count upwards."""
    start = torch.arange(8)[:, None] * 5
    tokens = (start + torch.arange(7)) % VOCABULARY
    return tokens[:, :-1], tokens[:, 1:]


def loss_fn(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the next tokens."""
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
