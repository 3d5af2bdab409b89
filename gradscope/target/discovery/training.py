"""Finds the loss: on the command line, in the setup, under the file's names."""

import inspect
from collections.abc import Mapping

import torch
from torch import nn

from gradscope.errors import GradscopeError
from gradscope.target.batches import read_batch
from gradscope.target.calling import MODEL_NAMES, positional_names, signature_of
from gradscope.target.discovery.importing import Source
from gradscope.target.discovery.values import build, evaluate, required_parameters
from gradscope.target.notation import LOSS_NAMES, LossName, parse_expression
from gradscope.target.objectives import (
    ComputeLoss,
    GivenGradient,
    LossFunction,
    NamedLoss,
    Objective,
    OwnLoss,
    training_step,
)
from gradscope.target.options import TargetOptions
from gradscope.target.structures import describe, named_tensors
from gradscope.target.user_code import did_you_mean


def find_objective(
    source: Source, setup: Mapping[str, object], model: nn.Module, options: TargetOptions
) -> Objective:
    """Return the objective; `--loss` and `--grad-output` override what the file offers.

    Raises:
        GradscopeError: The object cannot be called as a loss.
    """
    if options.loss is not None and options.grad_output is not None:
        raise GradscopeError(
            "--loss and --grad-output are mutually exclusive",
            cause="backward starts either from a loss or from the output itself",
        )
    if options.grad_output is not None:
        return GivenGradient(vector=_vector(options.grad_output), seed=options.seed)
    if options.loss is None:
        own = OwnLoss(allow_guess=options.allow_guesses, seed=options.seed)
        return _offered_objective(source, setup) or training_step(model) or own
    # A misspelt name would otherwise be searched in the file, with a less helpful message.
    is_meant = did_you_mean(options.loss, LOSS_NAMES) and not hasattr(source.module, options.loss)
    if options.loss in LOSS_NAMES or is_meant:
        return named_loss(options.loss, "--loss")
    expression = parse_expression(options.loss)
    _check_loss(source, expression.names[0])
    function = evaluate(source, expression)
    return to_objective(function, options.loss, source.location)


def _check_loss(source: Source, name: str) -> None:
    """Check that the file has what a loss is named after.

    Raises:
        GradscopeError: It has not.
    """
    if hasattr(source.module, name):
        return
    own = [other for other in vars(source.module) if not other.startswith("_")]
    raise GradscopeError(
        f"{source.location!r} has no {name!r}",
        help=did_you_mean(name, own)
        or f"--loss takes {', '.join(LOSS_NAMES)}, or a function of the file",
    )


def named_loss(name: str, option: str) -> NamedLoss:
    """Return the loss of that name.

    Raises:
        GradscopeError: There is no such loss.
    """
    if name in LOSS_NAMES:
        return NamedLoss(name=LossName(name))
    raise GradscopeError(
        f"unknown {option} {name!r}",
        help=did_you_mean(name, LOSS_NAMES) or f"one of {', '.join(LOSS_NAMES)}",
    )


def _offered_objective(source: Source, setup: Mapping[str, object]) -> Objective | None:
    for name in ("compute_loss", "loss_fn"):
        if name in setup:
            return to_objective(setup[name], name, source.location)
    for name in ("compute_loss", "loss_fn", "criterion"):
        function = getattr(source.module, name, None)
        if function is not None and not inspect.ismodule(function):
            return to_objective(function, name, source.location)
    return None


def to_objective(function: object, name: str, location: str) -> Objective:
    """Return the objective of a user's loss function.

    A function named `compute_loss`, or whose first parameter is `model`, `net`, `network`,
    `module`, `agent` or `policy`, gets the model and the batch. Any other gets the output, and its
    second parameter decides what else. The target comes first if the names say so, as in
    `loss_fn(target, prediction)`.

    Raises:
        GradscopeError: It cannot be called, or needs more arguments than gradscope has.
    """
    if inspect.isclass(function) and issubclass(function, nn.Module):
        function = build(function, name, location, "--loss")
    if not callable(function):
        raise GradscopeError(
            f"'{location}:{name}' is {type(function).__name__}, expected a function "
            "of (output, target), (output, batch) or (model, batch)"
        )
    # The signature of a module itself is that of `__call__`, which takes anything.
    called = function.forward if isinstance(function, nn.Module) else function
    parameters = positional_names(signature_of(called))
    if name == "compute_loss" or not MODEL_NAMES.isdisjoint(parameters[:1]):
        return ComputeLoss(function=function, name=name)
    needed = [parameter.name for parameter in required_parameters(called)]
    if len(needed) > 2:
        raise GradscopeError(
            f"{name} needs {len(needed)} arguments: {', '.join(needed)}",
            cause="expected a function of the output and the target, or the output and the batch",
            help="write in the file:  def compute_loss(model, batch): return loss",
        )
    return LossFunction(function=function, name=name)


def _vector(text: str) -> torch.Tensor | str:
    if text in ("ones", "randn"):
        return text
    content = read_batch(text)
    tensors = [tensor for _, tensor in named_tensors(content, "")]
    if len(tensors) != 1:
        raise GradscopeError(
            f"--grad-output {text!r} must contain one tensor", cause=f"it holds {describe(content)}"
        )
    return tensors[0]
