"""Walks and rebuilds nested containers of tensors, such as batches and outputs."""

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import fields, is_dataclass

import torch
from torch.nn.utils.rnn import PackedSequence

TensorFunction = Callable[[torch.Tensor], torch.Tensor]

_DESCRIBED = 8
"""Maximum number of tensors listed in a description; the rest is counted."""


def map_tensors(structure: object, function: TensorFunction) -> object:
    """Rebuild nested containers with the function applied to every tensor in them.

    Containers are always new, of the same type; other values are kept. A tensor that occurs twice
    is mapped once: aliases stay aliases.
    """
    # By `id`, because `==` of tensors compares elements.
    mapped: dict[int, torch.Tensor] = {}

    def once(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in mapped:
            mapped[id(tensor)] = function(tensor)
        return mapped[id(tensor)]

    return _rebuild(structure, once)


def _rebuild(value: object, function: TensorFunction) -> object:
    if isinstance(value, torch.Tensor):
        return function(value)
    return map_items(value, lambda item: _rebuild(item, function))


def map_items(value: object, function: Callable[[object], object]) -> object:
    """Return a new container of the same type with the function applied to every item in it.

    Values that are no containers are returned unchanged.
    """
    match value:
        case PackedSequence():
            # Its other tensors are lengths and orders, which must not change.
            return value._replace(data=function(value.data))  # type: ignore[arg-type]
        case Mapping():
            return _map_mapping(value, function)
        # A shape is a tuple that must stay a `torch.Size`.
        case tuple() if not isinstance(value, torch.Size):
            items = [function(item) for item in value]
            make = getattr(
                value, "_make", tuple
            )  # the constructor of a namedtuple accepts no iterable
            return make(items)
        case list():
            return [function(item) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return _map_dataclass(value, function)
        case _:
            return value


def _map_mapping(
    value: Mapping[object, object], function: Callable[[object], object]
) -> Mapping[object, object]:
    items = {key: function(item) for key, item in value.items()}
    if type(value) is dict or not isinstance(value, MutableMapping):
        return items
    # A shallow copy keeps what a `BatchEncoding` or a `defaultdict` stores besides its items.
    rebuilt = copy.copy(value)
    for key, item in items.items():
        rebuilt[key] = item
    return rebuilt


def _map_dataclass(value: object, function: Callable[[object], object]) -> object:
    rebuilt = copy.copy(value)
    for field in fields(value):  # type: ignore[arg-type]  # the caller has checked
        item = function(getattr(value, field.name))
        # Frozen dataclasses reject setattr, and replace() rejects fields that are not in __init__.
        object.__setattr__(rebuilt, field.name, item)
    return rebuilt


def named_tensors(value: object, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor of nested containers with the expression that reaches it.

    `name` is the expression of the whole structure, as `output`.
    """
    if isinstance(value, torch.Tensor):
        yield name, value
        return
    for path, item in _items(value):
        yield from named_tensors(item, name + path)


def _items(value: object) -> Iterator[tuple[str, object]]:
    match value:
        case PackedSequence():
            yield ".data", value.data
        case Mapping():
            # transformers' outputs are dataclasses and mappings, and are read by attribute.
            is_output_class = is_dataclass(value)
            for key, item in value.items():
                yield f".{key}" if is_output_class else f"[{key!r}]", item
        case tuple() | list():
            names = getattr(value, "_fields", None)
            for position, item in enumerate(value):
                yield f".{names[position]}" if names else f"[{position}]", item
        case _ if is_dataclass(value) and not isinstance(value, type):
            for field in fields(value):
                yield f".{field.name}", getattr(value, field.name)


def describe_tensor(tensor: torch.Tensor) -> str:
    """Return dtype and shape, as `float32[8,10]`."""
    dims = ",".join(str(size) for size in tensor.shape)
    return f"{str(tensor.dtype).removeprefix('torch.')}[{dims}]"


def describe(value: object) -> str:
    """Return the tensors of a batch or output, as `float32[8,10], int64[8]`; else the type's name.

    Named tensors include their name: `input_ids int64[2,16]`.
    """
    tensors = [
        f"{_label(path)}{describe_tensor(tensor)}" for path, tensor in named_tensors(value, "")
    ]
    if len(tensors) > _DESCRIBED:
        tensors[_DESCRIBED:] = [f"and {len(tensors) - _DESCRIBED} more"]
    return ", ".join(tensors) if tensors else type(value).__name__


def _label(path: str) -> str:
    label = path.strip(".[]'\"")
    return f"{label} " if label.isidentifier() else ""
