"""Batches: read from files, copied, and moved to a device and dtype."""

import json
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from gradscope.errors import GradscopeError
from gradscope.target.files import exists, require_file
from gradscope.target.structures import map_tensors


def is_batch_file(text: str) -> bool:
    """Return whether `--batch` names a file rather than an object in the target's file."""
    if "(" in text:
        return False
    path = Path(text)
    is_path = "/" in text or "\\" in text or (bool(path.suffix) and exists(path))
    return is_path or path.suffix in _READERS


def read_batch(text: str) -> object:
    """Read a batch, or any nested containers of tensors, from a file.

    `.pt` and `.pth` contain the output of `torch.save` (tensors and plain containers, no code),
    `.npz` and `.safetensors` named arrays, `.json` an object of numbers and lists, or one list.
    Arrays named by numpy (`arr_0`, `arr_1`) become a tuple, others a dict.

    Raises:
        GradscopeError: The file cannot be opened or read.
    """
    reader = _READERS.get(Path(text).suffix)
    if reader is None:
        raise GradscopeError(
            f"cannot read {text!r} as a batch", help=f"use one of {', '.join(_READERS)}"
        )
    return reader(require_file(text))


def copy_batch(batch: object) -> object:
    """Copy the containers and tensors of a batch, because a forward may change it.

    Tensors that require grad are not copied: a copy would not be the user's leaf.
    """
    return map_tensors(batch, lambda tensor: tensor if tensor.requires_grad else tensor.clone())


def move_batch(batch: object, device: torch.device, dtype: torch.dtype | None) -> object:
    """Move all tensors to a device, and floating-point ones to a dtype; leaves stay leaves."""

    def move(tensor: torch.Tensor) -> torch.Tensor:
        wanted = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
        if tensor.device == device and tensor.dtype == wanted:
            return tensor
        return tensor.detach().to(device, wanted).requires_grad_(tensor.requires_grad)

    return map_tensors(batch, move)


def read_torch(path: Path) -> object:
    """Read the output of `torch.save`, and reject anything that would run code.

    Raises:
        GradscopeError: The file contains more than tensors and plain containers, or is damaged.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        refused = "weights_only" in str(error).lower() or "weights only" in str(error).lower()
        raise GradscopeError(
            f"cannot read {str(path)!r}",
            cause="it contains Python objects besides tensors, and loading them would run code"
            if refused
            else "it was not written by torch.save",
            help="save only tensors, tuples and dicts of them (for a model: model.state_dict())",
        ) from None


def read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    """Read the named tensors of a safetensors file.

    Raises:
        GradscopeError: The file is damaged, or the safetensors package is not installed.
    """
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ModuleNotFoundError:
        raise GradscopeError(
            f"cannot read {str(path)!r} without the safetensors package",
            help="pip install safetensors",
        ) from None
    try:
        tensors: dict[str, torch.Tensor] = load_file(path)
    except SafetensorError as error:
        raise GradscopeError(f"cannot read {str(path)!r}", cause=str(error)) from None
    return tensors


def _read_npz(path: Path) -> object:
    try:
        import numpy
    except ModuleNotFoundError:
        raise GradscopeError(
            f"cannot read {str(path)!r} without numpy", help="pip install numpy"
        ) from None
    try:
        with numpy.load(path, allow_pickle=False) as arrays:
            tensors = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except (ValueError, TypeError, OSError) as error:
        raise GradscopeError(
            f"cannot read {str(path)!r}",
            cause=str(error),
            help="write it with numpy.savez, arrays of numbers only",
        ) from None
    if all(name == f"arr_{position}" for position, name in enumerate(tensors)):
        return next(iter(tensors.values())) if len(tensors) == 1 else tuple(tensors.values())
    return tensors


def _read_json(path: Path) -> object:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return _tensors_of_json(content)
    except (ValueError, TypeError, RuntimeError) as error:
        # json raises ValueErrors; torch.tensor raises any of these for ragged, mixed or oversized
        # numbers.
        raise GradscopeError(
            f"cannot read {str(path)!r}",
            cause=str(error),
            help='write an object of lists of numbers: {"x": [[0.5, 1.0]], "y": [0]}',
        ) from None


def _tensors_of_json(content: object) -> object:
    if isinstance(content, Mapping):
        return {key: _tensors_of_json(value) for key, value in content.items()}
    if isinstance(content, list | int | float):
        return torch.tensor(content)
    return content


_READERS: dict[str, Callable[[Path], object]] = {
    ".pt": read_torch,
    ".pth": read_torch,
    ".npz": _read_npz,
    ".safetensors": read_safetensors,
    ".json": _read_json,
}
