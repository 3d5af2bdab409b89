"""What is inspected: a model, a batch, and the way from them to a loss."""

from dataclasses import dataclass, replace
from typing import Protocol, Self

import torch
from torch import nn

from gradscope.target.loader import Batches


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


class RunForward(Protocol):
    """Runs a model on a batch and computes the loss, any number of times."""

    def __call__(self) -> Outcome:
        """Run once."""

    def at(self, batch: object, seed: int | None) -> Self:
        """Return the same on another batch, under another seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A model with its batch, ready to run."""

    name: str
    """As the user wrote it, or the model's class."""
    model: nn.Module
    batch: object
    batches: Batches
    """What training takes, `batch` first."""
    forward: RunForward
    optimizer: torch.optim.Optimizer | None
    seed: int | None
    """Set before each forward, in later training steps to as many more; None leaves the random
    state alone."""
    stale_optimizer: torch.optim.Optimizer | None = None
    """One that the user gave for this model and that holds none of its parameters."""
    clip_grad_norm: float | None = None
    """The largest gradient norm that its training clips to, where it says so."""
    notes: tuple[str, ...] = ()
    """What was decided for the user and is worth telling, as dropped batch keys."""

    def at(self, step: int, batch: object) -> Self:
        """Return the target in a later training step: on its batch, with its random numbers."""
        seed = None if self.seed is None else (self.seed + step) % 2**64
        return replace(self, batch=batch, forward=self.forward.at(batch, seed))
