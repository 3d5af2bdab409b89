"""Finds the optimizer, and checks that it is the model's."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from gradscope.errors import GradscopeError
from gradscope.target.calling import can_take, signature_of
from gradscope.target.discovery.importing import Source
from gradscope.target.user_code import UserCode


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundOptimizer:
    """An optimizer with parameters of the model, or why there is none."""

    optimizer: torch.optim.Optimizer | None
    stale: torch.optim.Optimizer | None = None
    """An optimizer given for this model that has none of its parameters."""
    notes: tuple[str, ...] = ()


def find_optimizer(source: Source, setup: Mapping[str, object], model: nn.Module) -> FoundOptimizer:
    """Return the optimizer: from the setup, `build_optimizer(model)`, or `optimizer`.

    Raises:
        GradscopeError: It is no optimizer.
        UserCodeError: Building it raised.
    """
    if "optimizer" in setup:
        given = setup["optimizer"]
        found = usable_optimizer(_built(given, "optimizer", model), model)
        is_built = not isinstance(given, torch.optim.Optimizer)
        return found if is_built or setup.get("model") is model else replace(found, stale=None)
    factory = getattr(source.module, "build_optimizer", None)
    if callable(factory):
        return usable_optimizer(_built(factory, "build_optimizer", model), model)
    optimizer = getattr(source.module, "optimizer", None)
    is_one = isinstance(optimizer, torch.optim.Optimizer)
    found = usable_optimizer(optimizer if is_one else None, model)
    # The file's optimizer cannot have the parameters of a model built for the inspection.
    is_for_it = any(value is model for value in vars(source.module).values())
    return found if is_for_it else replace(found, stale=None)


def usable_optimizer(optimizer: object, model: nn.Module) -> FoundOptimizer:
    """Return the optimizer, unless it is that of another model; None is none.

    Raises:
        GradscopeError: It is no optimizer.
    """
    if optimizer is None:
        return FoundOptimizer(optimizer=None)
    checked = _checked(optimizer, "optimizer")
    held = {id(tensor) for group in checked.param_groups for tensor in group["params"]}
    if any(id(parameter) in held for parameter in model.parameters()):
        return FoundOptimizer(optimizer=checked)
    note = "the optimizer has none of the model's parameters and is not used"
    return FoundOptimizer(optimizer=None, stale=checked, notes=(note,))


def _built(value: object, name: str, model: nn.Module) -> torch.optim.Optimizer:
    is_factory = callable(value) and not isinstance(value, torch.optim.Optimizer | type)
    if not is_factory or not callable(value):
        return _checked(value, name)
    if not can_take(signature_of(value), 1):
        raise GradscopeError(
            f"{name} takes the model",
            help=f"write  def {name}(model): return torch.optim.SGD(model.parameters(), lr=0.1)",
        )
    with UserCode(f"{name}(model) failed"):
        built = value(model)
    return _checked(built, f"{name}(model)")


def _checked(value: object, name: str) -> torch.optim.Optimizer:
    if isinstance(value, torch.optim.Optimizer):
        return value
    if isinstance(value, type):
        raise GradscopeError(
            f"{name} is the class {value.__name__}",
            help=f"pass {value.__name__}(model.parameters(), ...)",
        )
    raise GradscopeError(
        f"{name} is {type(value).__name__}, expected torch.optim.Optimizer",
        help="end it with: return optimizer" if value is None else None,
    )
