"""Prepares a model as requested: weights, device, dtype, mode."""

from collections.abc import Mapping

import torch
from torch import nn

from gradscope.errors import GradscopeError
from gradscope.target import members
from gradscope.target.batches import read_safetensors, read_torch
from gradscope.target.notation import FLOATING_TYPES, meant_device, meant_type
from gradscope.target.user_code import did_you_mean, require_file

_FLOATING = {name: getattr(torch, name) for name in FLOATING_TYPES}
_NESTED_UNDER = ("state_dict", "model_state_dict", "model")
_PREFIXES = ("module.", "_orig_mod.")


_NO_NUMBERS = "a model on the meta device has no values"


def check_materialized(model: nn.Module) -> None:
    """Check that the parameters and buffers have values.

    Raises:
        GradscopeError: Some are on the meta device.
    """
    tensors = [*members.named_parameters(model), *members.named_buffers(model)]
    for name, tensor in tensors:
        if tensor.is_meta:
            raise GradscopeError(
                _NO_NUMBERS,
                cause=f"{name!r} is on the meta device",
                help="build it on a real device, or: model.to_empty(device='cpu'), and initialize "
                "it",
            )


def parse_device(text: str) -> torch.device:
    """Return the device.

    Raises:
        GradscopeError: torch does not know it, or this machine does not have it.
    """
    if text.partition(":")[0] == "meta":
        raise GradscopeError(_NO_NUMBERS, help="give --device cpu")
    try:
        device = torch.device(text)
        # `torch.device` accepts devices that this machine lacks: only an allocation tells.
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        # torch without CUDA raises an AssertionError.
        meant = meant_device(text)
        raise GradscopeError(
            f"cannot use --device {text!r}",
            cause=str(error).strip().splitlines()[0],
            help=f"did you mean {meant!r}?" if meant else "--device cpu works everywhere",
        ) from None
    # `cuda` alone never equals the `cuda:0` of a tensor on it.
    return torch.empty(0, device=device).device


def parse_dtype(text: str) -> torch.dtype:
    """Return the floating-point dtype.

    Raises:
        GradscopeError: There is no such dtype.
    """
    name = text.removeprefix("torch.")
    if name not in _FLOATING:
        meant = meant_type(name)
        hint = f"did you mean {meant!r}?" if meant else did_you_mean(name, _FLOATING)
        raise GradscopeError(
            f"unknown --dtype {text!r}",
            help=hint or f"one of {', '.join(_FLOATING)}",
        )
    dtype: torch.dtype = _FLOATING[name]
    return dtype


def load_checkpoint(model: nn.Module, text: str) -> None:
    """Load weights into the model, from a state dict or a file that contains one.

    Raises:
        GradscopeError: The file is unreadable, or its weights are not this model's.
    """
    path = require_file(text)
    content = read_safetensors(path) if path.suffix == ".safetensors" else read_torch(path)
    weights = _state_dict(content, text)
    # Compared first, because `load_state_dict` loads what fits before it raises.
    expected = model.state_dict()
    problems = [
        *_listed("missing", [name for name in expected if name not in weights]),
        *_listed("not in the model", [name for name in weights if name not in expected]),
        *_listed("of another shape", _misshaped(expected, weights)),
    ]
    if problems:
        raise GradscopeError(
            f"{text!r} does not fit {type(model).__name__}", cause="; ".join(problems)
        )
    model.load_state_dict(weights)


def _state_dict(content: object, text: str) -> dict[str, torch.Tensor]:
    if isinstance(content, Mapping):
        for key in _NESTED_UNDER:
            if isinstance(content.get(key), Mapping):
                content = content[key]
                break
    if not isinstance(content, Mapping) or not all(
        isinstance(value, torch.Tensor) for value in content.values()
    ):
        raise GradscopeError(
            f"{text!r} contains no weights",
            help="save them with torch.save(model.state_dict(), ...)",
        )
    weights = {str(name): tensor for name, tensor in content.items()}
    for prefix in _PREFIXES:
        # Prefixes added by DataParallel and torch.compile.
        if weights and all(name.startswith(prefix) for name in weights):
            weights = {name.removeprefix(prefix): value for name, value in weights.items()}
    return weights


def _misshaped(
    expected: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]
) -> list[str]:
    return [
        f"{name} {tuple(weights[name].shape)} for {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name in weights and weights[name].shape != tensor.shape
    ]


def _listed(title: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return [f"{len(names)} {title} ({', '.join(names[:3])}{more})"]
