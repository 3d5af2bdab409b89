"""Finds and checks the target's optimizer, or makes the one of `--optimizer` and `--lr`."""

import inspect
import math
import warnings
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import nn

from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.target import members
from gradscope.target.calling import can_take, signature_of
from gradscope.target.discovery.importing import Source
from gradscope.target.options import Trial
from gradscope.target.target import Target
from gradscope.target.user_code import UserCode, did_you_mean


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
        # An optimizer of another model of the file is no mistake.
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
    # By `id`, because `==` of tensors compares elements.
    held = {id(tensor) for group in checked.param_groups for tensor in group["params"]}
    if any(id(parameter) in held for parameter in members.parameters(model)):
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


DEFAULT_LEARNING_RATE = 1e-3
"""Learning rate of the Adam used without an optimizer, and of classes without a default."""


def with_trial_optimizer(target: Target, trial: Trial) -> Target:
    """Return the target with the optimizer that the trial requests.

    If only a learning rate is requested, the target keeps its own (see `set_learning_rate`). A
    target without an optimizer then gets an Adam.

    Raises:
        GradscopeError: There is no such optimizer, or it rejects this model or this rate.
    """
    lr = trial.lr
    if lr is not None and not (math.isfinite(lr) and lr >= 0):
        raise GradscopeError(f"--lr {lr:g} is not a learning rate", help="for example: --lr 1e-3")
    name = trial.optimizer
    if name is None and lr is not None and target.optimizer is None:
        name = "Adam"
    if name is not None:
        return replace(target, optimizer=named_optimizer(name, target, lr))
    return target


def set_learning_rate(target: Target, trial: Trial) -> None:
    """Write the requested learning rate into every group of the optimizer.

    Raises:
        GradscopeError: The optimizer has no learning rate.
    """
    if trial.lr is None or target.optimizer is None:
        return
    for group in target.optimizer.param_groups:
        if "lr" not in group:
            raise GradscopeError(
                f"--lr {trial.lr:g}: {type(target.optimizer).__name__} has no learning rate",
                help="--optimizer adamw has one",
            )
        rate = group["lr"]
        is_tensor = isinstance(rate, torch.Tensor)
        # A capturable optimizer needs its rate as a tensor.
        group["lr"] = torch.full_like(rate, trial.lr) if is_tensor else trial.lr


def named_optimizer(name: str, target: Target, lr: float | None) -> torch.optim.Optimizer | None:
    """Return an optimizer of the same parameters as the target's own; None if there are none.

    If the target has none, it gets all parameters of the model that require grad.

    Args:
        name: Class name in `torch.optim`, in any case.
        target: Target whose model it trains.
        lr: Learning rate; None for the class's own default, else `DEFAULT_LEARNING_RATE`.

    Raises:
        GradscopeError: There is no such class, or it rejects the parameters.
    """
    kind = _class_named(name)
    parameters = _trained(target)
    if not parameters:
        return None
    has_default = inspect.signature(kind).parameters["lr"].default is not inspect.Parameter.empty
    if lr is None and not has_default:
        lr = DEFAULT_LEARNING_RATE
    chosen = {} if lr is None else {"lr": lr}
    try:
        with warnings.catch_warnings():
            # The target's own optimizer has warned already.
            warnings.filterwarnings("ignore", message=".*duplicate parameters")
            return kind(parameters, **chosen)  # type: ignore[arg-type]
    except (ValueError, TypeError, RuntimeError) as error:
        raise GradscopeError(
            f"--optimizer {kind.__name__} does not accept the parameters of "
            f"{type(target.model).__name__}",
            cause=str(error),
        ) from None


def _trained(target: Target) -> list[torch.Tensor]:
    if target.optimizer is None:
        return [one for one in members.parameters(target.model) if one.requires_grad]
    return [tensor for group in target.optimizer.param_groups for tensor in group["params"]]


def closure_reason(kind: type[torch.optim.Optimizer]) -> str | None:
    """Return why gradscope cannot make the steps of a class, None if it can."""
    closure = inspect.signature(kind.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        return f"{kind.__name__} needs a closure for its steps"
    return None


def _class_named(name: str) -> type[torch.optim.Optimizer]:
    kinds = _classes()
    wanted = name.rpartition(".")[2].lower()
    if wanted not in kinds:
        known = sorted(one.__name__ for one in kinds.values() if closure_reason(one) is None)
        raise GradscopeError(
            f"unknown --optimizer {name!r}",
            cause=f"torch.optim has {', '.join(known)}",
            help=_suggestion(wanted, kinds),
        )
    reason = closure_reason(kinds[wanted])
    if reason is not None:
        raise GradscopeError(
            f"cannot use --optimizer {name}", cause=reason, help="for example: --optimizer adamw"
        )
    return kinds[wanted]


def _classes() -> dict[str, type[torch.optim.Optimizer]]:
    """Return the optimizers of this torch by their names in lower case."""
    found = {}
    for name, value in vars(torch.optim).items():
        is_one = isinstance(value, type) and issubclass(value, torch.optim.Optimizer)
        if is_one and value is not torch.optim.Optimizer:
            found[name.lower()] = value
    return found


def _suggestion(name: str, kinds: dict[str, type[torch.optim.Optimizer]]) -> str | None:
    return did_you_mean(name.replace("_", "").replace("-", ""), kinds)
