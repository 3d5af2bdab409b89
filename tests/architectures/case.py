"""What a case of the test bed is, and how it runs without gradscope."""

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor, nn

# Nothing is downloaded; a configuration that tried to must fail at once. This module is imported
# before any that imports transformers, which reads the variable once.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

SEED = 7

Built = tuple[nn.Module, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchitectureCase:
    name: str
    build: Callable[[], Built]
    """Returns the model and its batch: a mapping of keyword arguments where `loss` is None, else
    a tuple whose last item is the target."""
    loss: Callable[[object, object], Tensor] | None = None
    """Called with output and target; None takes the output's own `loss`."""
    slow: bool = False
    """Left out of a quick run."""


def built(case: ArchitectureCase) -> Built:
    """Build the case in train mode; equal each time, and the forward that follows is too."""
    seed(SEED)
    model, batch = case.build()
    model.train()
    seed(SEED + 1)
    return model, batch


def seed(number: int) -> None:
    """Seed torch and numpy, from which transformers draws the masks of speech models."""
    torch.manual_seed(number)
    numpy.random.seed(number)


def forward_loss(case: ArchitectureCase, model: nn.Module, batch: object) -> Tensor:
    """Call the model and its loss, written out apart from gradscope's own way of calling."""
    if case.loss is None:
        return model(**batch).loss
    *inputs, target = batch
    return case.loss(model(*inputs), target)
