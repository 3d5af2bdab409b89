"""The batches of a target: one per training step, read when requested."""

from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, repeat

from gradscope.errors import GradscopeError
from gradscope.target.structures import named_tensors
from gradscope.target.user_code import UserCode

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
