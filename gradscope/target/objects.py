"""Makes a target of objects in the user's own process."""

from collections.abc import Callable

import torch
from torch import nn

from gradscope.errors import GradscopeError
from gradscope.target.batches import Batches
from gradscope.target.discovery.training import named_loss, to_objective
from gradscope.target.forward import Forward, notes_on_batch
from gradscope.target.objectives import GivenGradient, Objective, OwnLoss, training_step
from gradscope.target.optimizers import usable_optimizer
from gradscope.target.placement import check_materialized
from gradscope.target.target import Target


def target_from_objects(
    model: nn.Module,
    batch: object,
    loss_fn: Callable[..., object] | str | None = None,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    grad_output: torch.Tensor | str | None = None,
    name: str | None = None,
    seed: int | None = None,
) -> Target:
    """Make a target without changing the model's mode, device or dtype.

    Args:
        model: The model to inspect.
        batch: A tensor, tuple, dict or other container of them; or the `Batches` of a loader.
        loss_fn: See `to_objective`; also a name of `LossName`. None: see `own_loss`.
        optimizer: Optimizer with the trained parameters.
        grad_output: Replaces a loss: a tensor shaped as the output, `ones` or `randn`.
        name: Name of the target in the report.
        seed: Random seed set before each forward; None leaves the random state as it is.

    Raises:
        GradscopeError: The objects do not fit.
    """
    if not isinstance(model, nn.Module):
        help_ = "inspect(Net(), ...), with the parentheses" if isinstance(model, type) else None
        raise GradscopeError(
            f"the model is {type(model).__name__}, expected torch.nn.Module", help=help_
        )
    check_materialized(model)
    batches = batch if isinstance(batch, Batches) else Batches(batch)
    batch = batches.first
    objective = _objective(model, loss_fn, grad_output, seed)
    found = usable_optimizer(optimizer, model)
    return Target(
        name=name or type(model).__name__,
        model=model,
        batch=batch,
        batches=batches,
        forward=Forward(model=model, batch=batch, objective=objective, seed=seed),
        optimizer=found.optimizer,
        stale_optimizer=found.stale,
        seed=seed,
        notes=(*notes_on_batch(model, batch, objective), *found.notes),
    )


def _objective(
    model: nn.Module,
    loss_fn: Callable[..., object] | str | None,
    grad_output: torch.Tensor | str | None,
    seed: int | None,
) -> Objective:
    if grad_output is None:
        if loss_fn is None:
            return training_step(model) or OwnLoss(allow_guess=True, seed=seed)
        if isinstance(loss_fn, str):
            return named_loss(loss_fn, "loss_fn")
        return to_objective(loss_fn, _loss_name(loss_fn), "loss_fn")
    if loss_fn is not None:
        raise GradscopeError(
            "loss_fn and grad_output are mutually exclusive",
            cause="backward starts either from a loss or from the output itself",
        )
    if isinstance(grad_output, str) and grad_output not in ("ones", "randn"):
        raise GradscopeError(
            f"unknown grad_output {grad_output!r}", help="give 'ones', 'randn' or a tensor"
        )
    return GivenGradient(vector=grad_output, seed=seed)


def _loss_name(loss_fn: Callable[..., object]) -> str:
    name = getattr(loss_fn, "__name__", type(loss_fn).__name__)
    # A lambda is called `<lambda>`.
    return name if str(name).isidentifier() else "loss_fn"
