"""Reads the tensors that nodes saved for backward, without running anyone's code."""

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd.graph import Node

from gradscope.capture.reading import is_plain

if TYPE_CHECKING:
    from typing_extensions import TypeIs

_RAW = "_raw_saved_"
_OF_FUNCTION = "_raw_saved_tensors"
"""Attribute of a custom function with the tensors saved by its `ctx`."""


def saved_tensors(node: Node, *, readable: bool) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors that a node saved, by torch's name: `self`, `result`.

    It skips tensors that backward freed, that were written to since, or that the script's own hooks
    packed: under a checkpoint, unpacking would run the forward.

    Args:
        node: The node.
        readable: Whether to read them if torch does not expose hooks on them.
    """
    # torch exposes each saved tensor twice: `_saved_x` unpacks it, `_raw_saved_x` does not.
    for raw_name in _raw_names(type(node)):
        try:
            # Only the raw form can be read without running unpack hooks.
            # Backward without `retain_graph` frees saved tensors; any access then raises.
            raw = getattr(node, raw_name)
            if all(_is_unhooked(one, readable=readable) for one in _listed(raw)):
                name = raw_name.removeprefix(_RAW)
                custom = raw_name == _OF_FUNCTION and hasattr(type(node), "saved_tensors")
                # Unpacking checks the version: after an in-place write, it raises.
                saved = getattr(node, "saved_tensors" if custom else f"_saved_{name}")
                yield from ((name, one) for one in _listed(saved) if has_storage(one))
        except (AttributeError, RuntimeError):
            continue


def saved_tensor(node: Node, name: str, *, readable: bool) -> Tensor | None:
    """Return the tensor that an operation of torch saved under a name, None as above."""
    try:
        if _is_unhooked(getattr(node, _RAW + name), readable=readable):
            saved = getattr(node, f"_saved_{name}")
            return saved if has_storage(saved) else None
    except (AttributeError, RuntimeError):
        pass
    return None


def saved_value(node: Node, name: str) -> object:
    """Return a number or a list of numbers that a node saved, None if it has none."""
    value = getattr(node, f"_saved_{name}", None)
    if isinstance(value, tuple):
        return tuple(map(_signed, value))
    return _signed(value)


def has_storage(value: object) -> "TypeIs[Tensor]":
    """Return whether a value is a strided tensor whose elements can be read."""
    if not isinstance(value, Tensor) or type(value) not in (Tensor, torch.nn.Parameter):
        return False
    return is_plain(value)


@cache
def _raw_names(kind: type) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith(_RAW))


def _listed(value: object) -> tuple[object, ...]:
    if isinstance(value, tuple | list):
        return tuple(value)
    return () if value is None else (value,)


def _is_unhooked(raw: object, *, readable: bool) -> bool:
    if not hasattr(raw, "unpack_hook"):
        return readable
    return raw.unpack_hook is None


def _signed(value: object) -> object:
    """Return a dimension with its sign: torch shows -1 as an unsigned number."""
    is_unsigned = isinstance(value, int) and not isinstance(value, bool) and value >= 2**63
    return value - 2**64 if is_unsigned and isinstance(value, int) else value
