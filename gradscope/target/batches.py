"""Batches: made from specifications, read from files, copied, moved, and one per training step."""

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import cycle, repeat
from pathlib import Path

import torch

from gradscope.errors import GradscopeError
from gradscope.target.notation import InputSpec, parse_input
from gradscope.target.stored_batches import StoredBatchAddress, read_stored_batch
from gradscope.target.structures import map_tensors, named_tensors
from gradscope.target.user_code import UserCode, exists, require_file


def make_inputs(texts: tuple[str, ...], *, seed: int | None, vocabulary: int | None) -> object:
    """Return the batch of `--input` options: a tensor, a tuple, or a dict of named tensors.

    Floats are normal (uniform with a range), integers uniform, bools all true.

    Args:
        texts: The specifications, either all named or all positional.
        seed: Seed of a separate generator; None draws from torch's global one.
        vocabulary: Range of integers without an explicit one; None makes that an error.

    Raises:
        GradscopeError: A specification is not valid.
    """
    specs = [parse_input(text) for text in texts]
    named = [spec for spec in specs if spec.name is not None]
    if named and len(named) < len(specs):
        raise GradscopeError(
            "named and positional --input do not mix",
            help="give every input a name: --input x=" + next(t for t in texts if "=" not in t),
        )
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    tensors = [_make(spec, generator, vocabulary) for spec in specs]
    if named:
        return {spec.name: tensor for spec, tensor in zip(specs, tensors, strict=True)}
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


def spec_like(tensor: torch.Tensor) -> str:
    """Return a specification for tensors of this shape, dtype and, for integers, range."""
    dims = ",".join(map(str, tensor.shape))
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.dtype is torch.float32:
        return dims
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool:
        return f"{dtype}:{dims}"
    # Exclusive, as in `torch.randint`.
    high = int(tensor.max()) + 1 if tensor.numel() else 1
    return f"{dtype}[0,{high}]:{dims}"


def _make(
    spec: InputSpec, generator: torch.Generator | None, vocabulary: int | None
) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    if dtype is torch.bool:
        return torch.ones(spec.dims, dtype=torch.bool)
    if dtype.is_floating_point or dtype.is_complex:
        return _make_floating(spec, dtype, generator)
    low, high = spec.low, spec.high
    if low is None or high is None:
        if vocabulary is None:
            raise GradscopeError(
                f"--input {spec.text!r} needs a range, because its type is an integer",
                help=f"--input {spec.text.replace(':', '[0,10]:')}",
            )
        low, high = 0, vocabulary
    return torch.randint(int(low), int(high), spec.dims, dtype=dtype, generator=generator)


def _make_floating(
    spec: InputSpec, dtype: torch.dtype, generator: torch.Generator | None
) -> torch.Tensor:
    if spec.low is None or spec.high is None:
        # Drawn in float32: the same numbers in every type, and some types cannot be drawn.
        return torch.randn(spec.dims, generator=generator).to(dtype)
    uniform = torch.rand(spec.dims, generator=generator)
    return (spec.low + (spec.high - spec.low) * uniform).to(dtype)


def is_batch_file(text: str) -> bool:
    """Return whether `--batch` names a file rather than an object in the target's file."""
    # A call may have a path among its arguments.
    if "(" in text:
        return False
    if StoredBatchAddress.of(text) is not None:
        return True
    path = Path(text)
    is_path = "/" in text or "\\" in text or (bool(path.suffix) and exists(path))
    return is_path or path.suffix in _READERS


def read_batch(text: str) -> object:
    """Read a batch, or any nested containers of tensors, from a file.

    `.pt` and `.pth` contain the output of `torch.save` (tensors and plain containers, no code),
    `.npz` and `.safetensors` named arrays, `.json` an object of numbers and lists, or one list.
    `train.gradscope:step=1200` is a batch that a recording stores.
    Arrays named by numpy (`arr_0`, `arr_1`) become a tuple, others a dict.

    Raises:
        GradscopeError: The file cannot be opened or read.
    """
    address = StoredBatchAddress.of(text)
    if address is not None:
        require_file(str(address.file))
        return read_stored_batch(address)
    reader = _READERS.get(Path(text).suffix)
    if reader is None:
        is_recording = Path(text).suffix == ".gradscope"
        hint = f"name the step: {text}:step=1200" if is_recording else None
        raise GradscopeError(
            f"cannot read {text!r} as a batch", help=hint or f"use one of {', '.join(_READERS)}"
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
        # A moved leaf would be the result of an operation otherwise, and its gradient would be
        # dropped.
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
        # torch tells a refusal from damage by its message alone.
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
        # Imported here, because the package is optional.
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
        # A pickled array would run code when it is read.
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

STORED_BYTES = 256 * 2**20
"""Maximum bytes kept of a one-shot iterator's batches, to repeat them once it is exhausted."""

_END = object()


class Batches:
    """A batch per training step; here always the same.

    Args:
        first: Batch of the first step.
    """

    def __init__(self, first: object) -> None:
        self.first = first

    def __iter__(self) -> Iterator[object]:
        """Yield batches without end, the first one first."""
        return repeat(self.first)

    def mapped(self, prepare: Callable[[object], object]) -> "Batches":
        """Return the same batches, each prepared when it is read."""
        return Batches(prepare(self.first))

    def close(self) -> None:
        """Release the reader of the batches; it restarts if more are requested."""


class LoadedBatches(Batches):
    """The batches of a loader, which restarts when it ends.

    They may be iterated once: a second iteration yields the first batch and continues from there.

    Args:
        loader: A `DataLoader`, an iterator or another iterable; its first batch is read at once.
        name: Name of the loader.
        location: File of the loader.

    Raises:
        GradscopeError: The loader is empty.
        UserCodeError: It raised.
    """

    def __init__(self, loader: Iterable[object], name: str, location: str) -> None:
        self._loader, self._name, self._location = loader, name, location
        self._prepare: tuple[Callable[[object], object], ...] = ()
        with UserCode(f"reading the first batch of {name!r} failed"):
            # Kept, because another iteration would start the workers of a loader again.
            self._rest: Iterator[object] | None = iter(loader)
            first = next(self._rest, _END)
        if first is _END:
            raise GradscopeError(f"{name!r} of {location!r} is empty: it contains no batch")
        super().__init__(first)

    def mapped(self, prepare: Callable[[object], object]) -> "LoadedBatches":
        """Return the same batches, each prepared when it is read."""
        self._prepare = (*self._prepare, prepare)
        self.first = prepare(self.first)
        return self

    def close(self) -> None:
        """Release the iterator, and with it the processes of a `DataLoader`."""
        self._rest = None

    def __iter__(self) -> Iterator[object]:
        """Yield batches without end, the first one first."""
        yield self.first
        kept = _Kept(self.first)
        is_one_shot = isinstance(self._loader, Iterator)
        while True:
            batch = self._read()
            if batch is _END and is_one_shot:
                # A generator cannot restart: what it gave is repeated.
                yield from cycle(kept.batches)
            if batch is _END:
                batch = self._read()
            if batch is _END:
                raise GradscopeError(
                    f"{self._name!r} of {self._location!r} gives no batch in a second iteration",
                    help="use a list or a DataLoader, which restart",
                )
            for prepare in self._prepare:
                batch = prepare(batch)
            if is_one_shot:
                kept.add(batch)
            yield batch

    def _read(self) -> object:
        """Return the next batch; report the end, and restart at the next call."""
        with UserCode(f"reading the next batch of {self._name!r} failed"):
            if self._rest is None:
                self._rest = iter(self._loader)
            batch = next(self._rest, _END)
        if batch is _END:
            self._rest = None
        return batch


class _Kept:
    """Batches read so far, within a memory limit."""

    def __init__(self, first: object) -> None:
        self.batches = [first]
        self._bytes = _size(first)

    def add(self, batch: object) -> None:
        self._bytes += _size(batch)
        if self._bytes <= STORED_BYTES:
            self.batches.append(batch)


def _size(batch: object) -> int:
    return sum(tensor.numel() * tensor.element_size() for _, tensor in named_tensors(batch, ""))
