"""The repeatable forward of a target."""

import random
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Self

import torch
from torch import nn

from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.target import members
from gradscope.target.batches import copy_batch
from gradscope.target.calling import divide_batch, forward_signature
from gradscope.target.hints import signature_text
from gradscope.target.objectives import Objective
from gradscope.target.outputs import FrozenModelError, NoGradientError
from gradscope.target.target import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Runs the model on its batch and computes the loss. With a seed, it is reproducible."""

    model: nn.Module
    batch: object
    objective: Objective
    seed: int | None
    eager: bool = False

    def __call__(self) -> Outcome:
        """Run once, on a copy of the batch: the forward may change it."""
        if self.seed is not None:
            seed_everything(self.seed)
        with _stance(eager=self.eager):
            try:
                return self.objective(self.model, copy_batch(self.batch))
            except NoGradientError as error:
                raise _frozen(self.model, error) or error from None

    def at(self, batch: object, seed: int | None) -> Self:
        """Return the same forward on another batch, with another seed."""
        return replace(self, batch=batch, seed=seed)


def seed_everything(seed: int) -> None:
    """Seed torch, random, and numpy if it is loaded."""
    if torch.accelerator.current_accelerator() is None:
        # For the devices that this torch cannot have, `torch.manual_seed` notes three tracebacks.
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        # numpy accepts 32 bits only.
        numpy.random.seed(seed % 2**32)


def notes_on_batch(model: nn.Module, batch: object, objective: Objective) -> tuple[str, ...]:
    """Return notes on the parts of the batch that neither the model nor the loss gets."""
    if objective.second is None:
        return ()
    left_out = divide_batch(batch, forward_signature(model), objective.second).left_out
    return tuple(
        f"batch element {name} is the target and is not passed to {signature_text(model)}"
        if name.startswith("[")
        else f"batch key {name!r} is dropped: {signature_text(model)} does not take it"
        for name in left_out
    )


def _stance(*, eager: bool) -> AbstractContextManager[object]:
    if not eager:
        return nullcontext()
    stance: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance


def _frozen(model: nn.Module, error: NoGradientError) -> GradscopeError | None:
    """Return the error for a model without trainable parameters."""
    parameters = list(members.parameters(model))
    if any(parameter.requires_grad for parameter in parameters):
        return None
    if not parameters:
        return GradscopeError(
            f"{type(model).__name__} has no parameters",
            help="are its layers in a plain list? use nn.ModuleList, and nn.Parameter for tensors",
        )
    return FrozenModelError(
        f"0 of {len(parameters)} parameters require grad",
        help="model.requires_grad_(True), or unfreeze at least one layer",
        subject=error.subject,
        loss=error.loss,
    )
