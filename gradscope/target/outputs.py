"""Finds in a model's output the loss it holds, or the tensor that a loss can be made of."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from gradscope.errors import GradscopeError
from gradscope.target.structures import describe, named_tensors


class NoGradientError(GradscopeError):
    """What the model gave does not require grad, so that nothing can flow back from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTensor:
    """A tensor of an output, with the expression that reaches it."""

    name: str
    """As `output.logits` or `output[0]`."""
    tensor: torch.Tensor


def own_loss(output: object) -> NamedTensor | None:
    """The loss that a model computed itself; None where it has none.

    `output.loss` or `output["loss"]`, an output that is itself one scalar that requires grad, or
    the only such scalar beside other tensors, as in `return logits, loss`.
    """
    if isinstance(output, Mapping) and isinstance(output.get("loss"), torch.Tensor):
        is_class = getattr(output, "loss", None) is output["loss"]
        name = "output.loss" if is_class else "output['loss']"
        return NamedTensor(name=name, tensor=output["loss"])
    loss = None if isinstance(output, torch.Tensor) else getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor):
        return NamedTensor(name="output.loss", tensor=loss)
    scalars = [
        NamedTensor(name=name, tensor=tensor)
        for name, tensor in named_tensors(output, "output")
        if tensor.dim() == 0 and tensor.requires_grad
    ]
    may_hold_loss = isinstance(output, torch.Tensor | tuple | list)
    return scalars[0] if may_hold_loss and len(scalars) == 1 else None


def first_trainable(output: object) -> NamedTensor:
    """The first floating or complex tensor of an output that requires grad.

    Raises:
        NoGradientError: There is none.
    """
    for name, tensor in named_tensors(output, "output"):
        if tensor.requires_grad:
            return NamedTensor(name=name, tensor=tensor)
    raise NoGradientError(
        f"nothing in the model's output requires grad; it is {describe(output)}",
        cause=_why_no_gradient(),
        help="return a tensor that depends on the parameters, without detach() or no_grad()",
    )


def checked_loss(value: object, made_by: str) -> torch.Tensor:
    """The loss as one real element that requires grad.

    Args:
        value: What user code gave as the loss; a mapping has it under `loss`.
        made_by: What gave it, for the message.

    Raises:
        GradscopeError: Backward cannot start from it.
    """
    loss = value.get("loss") if isinstance(value, Mapping) else value
    if not isinstance(loss, torch.Tensor):
        raise GradscopeError(
            f"{made_by} is {type(loss).__name__}, expected a tensor", help=_not_tensor_help(loss)
        )
    if loss.numel() != 1:
        raise GradscopeError(
            f"{made_by} is {describe(loss)}, not a scalar",
            cause="backward starts from one number",
            help="reduce it, as with .mean() or .sum(), or give --grad-output ones",
        )
    if loss.dtype.is_complex:
        raise GradscopeError(
            f"{made_by} is {describe(loss)}, and backward needs a real number",
            help="make it real, as with .abs() or .real",
        )
    if not loss.requires_grad:
        raise NoGradientError(
            f"{made_by} has no grad_fn: no gradient can flow from it",
            cause=_why_no_gradient(),
            help="look for detach(), .data, .item(), argmax() or torch.no_grad() on the way to it",
        )
    return loss


def _not_tensor_help(value: object) -> str | None:
    if value is None:
        return "end the function with: return loss"
    if isinstance(value, int | float):
        return "return the tensor itself, not loss.item()"
    return "return one tensor, the sum of the terms"


def _why_no_gradient() -> str | None:
    if torch.is_grad_enabled():
        return None
    return "gradients are switched off (torch.set_grad_enabled(False) or no_grad())"
