"""The named losses that compare an output with a target, and suggestions of a target."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd

from gradscope.errors import GradscopeError
from gradscope.target.inputs import spec_like
from gradscope.target.structures import describe_tensor
from gradscope.target.user_code import UserCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A loss, and how ambiguous shapes were interpreted."""

    loss: torch.Tensor
    reading: str = ""


def cross_entropy(output: torch.Tensor, target: torch.Tensor) -> Compared:
    """Return the cross entropy with the classes in dimension 1, as in torch, or in the last one.

    The last dimension is used if only that fits: `[batch, sequence, classes]` with a target of
    `[batch, sequence]`, as of language models.

    Raises:
        UserCodeError: torch rejects the shapes.
    """
    is_last = output.dim() > 2 and target.shape == output.shape[:-1]
    is_second = target.shape == output.shape[:1] + output.shape[2:]
    reading = ", classes in dimension 1" if is_last and is_second else ""
    fits = f"output {describe_tensor(output)}, target {describe_tensor(target)}"
    if is_last and not is_second:
        output, target = output.flatten(0, -2), target.flatten()
    with UserCode(f"--loss cross-entropy failed with {fits}"):
        return Compared(loss=functional.cross_entropy(output, target), reading=reading)


def mean_squared_error(output: torch.Tensor, target: torch.Tensor) -> Compared:
    """Return the mean of the squared absolute differences.

    Raises:
        GradscopeError: The shapes differ.
    """
    if output.shape != target.shape:
        raise GradscopeError(
            "--loss mse needs output and target of the same shape",
            cause=f"the output is {describe_tensor(output)}, the target {describe_tensor(target)}",
            help="reshape the target, as with target.unsqueeze(1) or output.squeeze(1)",
        )
    difference = output - target
    real = difference.abs() if difference.is_complex() else difference
    return Compared(loss=real.square().mean())


def target_help(model: nn.Module, batch: object, output: torch.Tensor, *, has_classes: bool) -> str:
    """Return the `--input` option that adds a target to a batch.

    Args:
        model: The model, whose last layer shows the dimension of the classes.
        batch: The existing batch; the command line must describe all of it.
        output: The tensor to compare with the target.
        has_classes: Whether the target contains class indices. Otherwise it has the output's shape.
    """
    spec = ",".join(map(str, output.shape))
    if has_classes and output.dim() > 1:
        position = _class_dimension(model, output)
        sizes = [size for at, size in enumerate(output.shape) if at != position]
        spec = f"int64[0,{output.shape[position]}]:{','.join(map(str, sizes))}"
    if isinstance(batch, Mapping):
        return f"give the target as another input: --input labels={spec}"
    given = " ".join(f"--input {spec_like(tensor)}" for tensor in _tensors(batch))
    return f"give the target as the last input: {given} --input {spec}"


def _tensors(batch: object) -> list[torch.Tensor]:
    items = batch if isinstance(batch, tuple | list) else [batch]
    return [item for item in items if isinstance(item, torch.Tensor)]


def _class_dimension(model: nn.Module, output: torch.Tensor) -> int:
    layers = [m for m in model.modules() if isinstance(m, nn.Linear | _ConvNd)]
    is_per_position = bool(layers) and isinstance(layers[-1], nn.Linear)
    return output.dim() - 1 if is_per_position else 1
