"""What is inspected: a model, a batch, and the way from them to a loss."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one forward ended in."""

    loss: torch.Tensor
    """Where backward starts. Of any shape when `grad_output` is given, else of one element."""
    grad_output: torch.Tensor | None
    """The vector of the vector-Jacobian product, shaped as `loss`; None for a scalar loss."""
    description: str
    """Where the loss came from, as `loss_fn(output, target)`."""
    synthetic: bool
    """Whether gradscope made the loss up because the target has none."""
    terms: tuple[tuple[str, torch.Tensor], ...] = ()
    """Scalars that were given beside the loss under names of their own, as the terms of its sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A model with its batch, ready to run; `forward` can be called any number of times."""

    name: str
    """As the user wrote it, or the model's class."""
    model: nn.Module
    batch: object
    forward: Callable[[], Outcome]
    """Runs the model on the batch and computes the loss."""
    optimizer: torch.optim.Optimizer | None
    seed: int | None
    """Set before each forward; None leaves the random state alone."""
    stale_optimizer: torch.optim.Optimizer | None = None
    """One that the user gave for this model and that holds none of its parameters."""
    notes: tuple[str, ...] = ()
    """What was decided for the user and is worth telling, as dropped batch keys."""
