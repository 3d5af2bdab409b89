"""The target of an inspection: a model, a batch, and the way from them to a loss."""

from dataclasses import replace
from typing import Literal, Protocol, Self

import torch
from torch import nn

from gradscope.frozen import dataclass
from gradscope.target.batches import Batches

Guessed = Literal["arguments", "batch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one forward."""

    loss: torch.Tensor
    """Start of backward. It has one element, or any shape if `grad_output` is given."""
    grad_output: torch.Tensor | None
    """The vector of the vector-Jacobian product, shaped as `loss`; None for a scalar loss."""
    description: str
    """Origin of the loss, as `loss_fn(output, target)`."""
    synthetic: bool
    """Whether gradscope guessed the loss, because the target has none."""
    terms: tuple[tuple[str, torch.Tensor], ...] = ()
    """Scalars named besides the loss, such as the terms of its sum."""


class RunForward(Protocol):
    """Runs a model on a batch and computes the loss, any number of times."""

    def __call__(self) -> Outcome:
        """Run once."""

    def at(self, batch: object, seed: int | None) -> Self:
        """Return the same on another batch, with another seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A model with its batch, ready to run."""

    name: str
    """Name as the user wrote it, or the model's class."""
    model: nn.Module
    batch: object
    batches: Batches
    """Batches of the training, `batch` first."""
    forward: RunForward
    optimizer: torch.optim.Optimizer | None
    seed: int | None
    """Seed before each forward; later training steps add their number. None leaves the random state
    as it is."""
    stale_optimizer: torch.optim.Optimizer | None = None
    """An optimizer given for this model that has none of its parameters."""
    clip_grad_norm: float | None = None
    """Maximum gradient norm to which its training clips, if it says so."""
    notes: tuple[str, ...] = ()
    """Decisions made for the user that should be reported, such as dropped batch keys."""
    guessed: tuple[Guessed, ...] = ()
    """Parts that the user did not give. A guessed loss is known only after a forward."""

    def at(self, step: int, batch: object) -> Self:
        """Return the target in a later training step: with its batch and random numbers."""
        # torch's seeds have 64 bits.
        seed = None if self.seed is None else (self.seed + step) % 2**64
        return replace(self, batch=batch, forward=self.forward.at(batch, seed))
