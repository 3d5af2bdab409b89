"""Makes a target of the command line's name, or of objects in the user's own process."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from gradscope.errors import GradscopeError
from gradscope.target import members
from gradscope.target.batches import Batches, move_batch
from gradscope.target.discovery.batch import FoundBatches, find_batch
from gradscope.target.discovery.importing import Source, command_line, import_source
from gradscope.target.discovery.model import FoundModel, find_model, to_model
from gradscope.target.discovery.source_check import line_of_training
from gradscope.target.discovery.training import find_objective, named_loss, to_objective
from gradscope.target.discovery.values import (
    build,
    checked_setup,
    clip_norm_of,
    evaluate,
    find_setup,
    required_parameters,
)
from gradscope.target.forward import Forward, notes_on_batch, seed_everything
from gradscope.target.notation import Expression, TargetSpec, parse_expression, parse_target
from gradscope.target.objectives import (
    GivenGradient,
    LossFunction,
    Objective,
    OwnLoss,
    training_step,
)
from gradscope.target.optimizers import find_optimizer, usable_optimizer
from gradscope.target.options import TargetOptions
from gradscope.target.placement import (
    check_materialized,
    load_checkpoint,
    parse_device,
    parse_dtype,
)
from gradscope.target.structures import describe, named_tensors
from gradscope.target.target import Guessed, Target
from gradscope.target.user_code import UserCode

_GRADIENTS_OFF = "the file leaves gradients disabled; your own training would raise"


def load_target(spec: str, options: TargetOptions) -> Target:
    """Import the target's file and prepare its model, batch, loss and optimizer.

    The random state is seeded once before the import, and again by each forward.

    Raises:
        GradscopeError: A part is missing or does not fit.
        UserCodeError: The user's code raised; `__cause__` is its exception.
    """
    parsed = parse_target(spec)
    chosen = _chosen_model(parsed, options)
    if options.seed is not None:
        # Before the import, which may build the model.
        seed_everything(options.seed)
    # Around the building as well: a factory may parse the arguments.
    with command_line(parsed.location, options.args):
        source = import_source(parsed.location)
        return _assemble(source, parsed, chosen, options)


def _chosen_model(parsed: TargetSpec, options: TargetOptions) -> Expression | None:
    if options.model is None:
        return parsed.expression
    if parsed.expression is not None:
        raise GradscopeError(
            f"two models are specified: {parsed.expression.text!r} and --model {options.model!r}",
            help="drop one of them",
        )
    return parse_expression(options.model)


def _check_has_elements(batch: object) -> None:
    tensors = [tensor for _, tensor in named_tensors(batch, "")]
    if tensors and not any(tensor.numel() for tensor in tensors):
        raise GradscopeError(
            f"the batch is empty: {describe(batch)}",
            help="give it at least one example, such as --input 8,16",
        )


def _assemble(
    source: Source, parsed: TargetSpec, chosen: Expression | None, options: TargetOptions
) -> Target:
    found_model, setup = _model_and_setup(source, chosen, options)
    model, notes = found_model.model, found_model.notes
    device = parse_device(options.device)
    dtype = None if options.dtype is None else parse_dtype(options.dtype)
    check_materialized(model)
    if options.checkpoint is not None:
        # Before the move, because files are read into main memory.
        load_checkpoint(model, options.checkpoint)
    with UserCode(f"moving {type(model).__name__} to {device} failed"):
        model.to(device, dtype).train(options.mode == "train")
    offered = find_batch(source, setup, model, options)
    batches = offered.batches.mapped(partial(move_batch, device=device, dtype=dtype))
    batch = batches.first
    _check_has_elements(batch)
    objective = find_objective(source, setup, model, options)
    if isinstance(objective, LossFunction) and isinstance(objective.function, nn.Module):
        # A loss may have weights of its own, such as those of classes.
        objective.function.to(device, dtype)
    found = find_optimizer(source, setup, model)
    if not torch.is_grad_enabled():
        notes = (*notes, _GRADIENTS_OFF)
    forward = Forward(
        model=model, batch=batch, objective=objective, seed=options.seed, eager=options.eager
    )
    if _give_shapes(forward):
        notes = (*notes, _LAZY_NOTE)
    return Target(
        name=parsed.text,
        model=model,
        batch=batch,
        batches=batches,
        forward=forward,
        optimizer=found.optimizer,
        stale_optimizer=found.stale,
        seed=options.seed,
        clip_grad_norm=clip_norm_of(setup),
        notes=(
            *notes,
            *((offered.guess, *_training_note(source)) if offered.guess else ()),
            *notes_on_batch(model, batch, objective),
            *found.notes,
        ),
        guessed=tuple(_guessed(found_model, offered)),
    )


def _training_note(source: Source) -> Iterator[str]:
    """Yield how to measure the file's own training, if it is a script."""
    line = line_of_training(source.location)
    if line is not None:
        yield (
            f"{source.location!r} trains as a script (line {line}): gradscope run "
            f"{source.location} measures its own batches and loss"
        )


def _guessed(model: FoundModel, batches: FoundBatches) -> Iterator[Guessed]:
    if model.is_guessed:
        yield "arguments"
    if batches.guess is not None:
        yield "batch"


def _model_and_setup(
    source: Source, chosen: Expression | None, options: TargetOptions
) -> tuple[FoundModel, Mapping[str, object]]:
    """Return the model, and further parts of the setup.

    An EXPR may be a whole setup instead of a model: a file can contain several.
    """
    convert = partial(to_model, location=source.location, allow_guesses=options.allow_guesses)
    if chosen is not None:
        value = evaluate(source, chosen)
        if inspect.isfunction(value) and chosen.call is None and not required_parameters(value):
            value = build(value, chosen.text, source.location)
        if not (isinstance(value, Mapping) and "model" in value):
            return convert(value, chosen.text), find_setup(source)
        setup = checked_setup(value, chosen.text)
    else:
        setup = find_setup(source)
    if "model" in setup:
        return convert(setup["model"], "model"), setup
    return find_model(source, allow_guesses=options.allow_guesses), setup


_LAZY_NOTE = "lazy layers took their shapes from the batch, in one forward in eval mode"


def _give_shapes(forward: Forward) -> bool:
    """Run the model once if it has lazy parameters; return whether it did.

    It runs in eval mode, which leaves running statistics as they are.
    """
    model = forward.model
    if not any(map(is_lazy, members.parameters(model))):
        return False
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        forward()
    finally:
        for module, is_training in modes:
            module.training = is_training
    return True


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
