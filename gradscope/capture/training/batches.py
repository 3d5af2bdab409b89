"""Remembers the batches of a script's data loaders: their samples, and the last ones themselves.

Without data loaders, a batch is what the trained model gets.

Nothing is drawn and no batch is fetched for it: the samplers' own indices are kept as they pass,
and the tensors of the last batches until others follow.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import takewhile
from time import perf_counter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as loaders

from gradscope.capture.compiler import is_traced
from gradscope.capture.training.batch_contents import BatchContents, Held
from gradscope.capture.training.guard import Function, Guard, Patches
from gradscope.recording.evidence.batches import BatchIdentity
from gradscope.recording.records import KeptBatch

_MOST = 65_536
"""Maximum number of indices that are remembered."""

_MOST_BYTES, _MOST_TENSORS = 32_000_000, 64
"""Maximum size and number of the tensors that are held; the last batch is held in any case."""

_ALL_READ = 64
"""Number of batches that are read; after these, one each time the number of requests doubles."""

_SECOND = 2


@dataclass(slots=True)
class _Loader:
    """A data loader of the script."""

    name: str = ""
    usual: int | None = None
    """Number of its batches in a usual step; None if unknown."""
    is_ahead: bool = False
    """Whether the script fetches batches before the step that uses them."""


@dataclass(slots=True)
class _Pass:
    """One iteration over a loader."""

    loader: _Loader
    fetched: dict[int, "array[int] | None"] = field(default_factory=dict)
    """By number of the batch: its indices, until it is delivered."""
    steps: int = 0
    """Number of steps that got batches."""
    step: int = -1
    """The last of these."""
    count: int = 0
    """Number of batches in that step."""
    first_count: int = 0
    """Number of batches in the first of these."""
    is_certain: bool = False
    """Whether each step uses the batches that it gets."""

    def deliver(self, step: int) -> None:
        """Take note of a batch in a step."""
        if step != self.step:
            self._close()
            self.step, self.count = step, 0
            self.steps += 1
        self.count += 1
        if self.steps == 1:
            self.first_count = self.count

    def _close(self) -> None:
        if self.steps == _SECOND:
            self.loader.is_ahead |= self.first_count > self.count
        if self.steps > 1:
            self.loader.usual = self.count

    def are_used(self, count: int, *, in_first: bool) -> bool:
        """Return whether so many batches that a step got are those that it used.

        A script that fetches ahead gets more batches in the first step.

        Args:
            count: Number of batches.
            in_first: Whether it is the first step.
        """
        if self.is_certain:
            return True
        if self.loader.is_ahead or count != self.first_count:
            return False
        return not in_first or count == (self.loader.usual or 1)


class _Delivered(NamedTuple):
    """A batch that the script got."""

    step: int
    source: _Pass
    indices: "array[int]"
    """Indices of the examples; empty if they are unknown."""
    is_first: bool
    """Whether the step is the first that gets batches in this iteration."""
    contents: BatchContents


class Batches:
    """The last batches that the script got from data loaders."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._loaders: WeakKeyDictionary[DataLoader[Any], _Loader] = WeakKeyDictionary()
        self._passes: WeakKeyDictionary[object, _Pass] = WeakKeyDictionary()
        self._last: deque[_Delivered] = deque()
        self._held = 0
        self._contents: deque[BatchContents] = deque()
        """Those of the last batches that are held."""
        self._size = self._tensors = 0
        """Bytes and number of their tensors."""
        self._requests = 0
        self._inputs = _Pass(_Loader(), is_certain=True)
        """What models got, in place of a loader."""
        self._has_loaders = False
        self.are_stored = False
        """Whether batches may be copied into the recording."""
        self.step: Callable[[], int]
        """Returns the index of the running step."""

    def install(self, patches: Patches) -> None:
        """Start observing, if torch has what is observed."""
        kind = getattr(loaders, "_BaseDataLoaderIter", None)
        if kind is not None and {"_next_index", "__next__"} <= set(vars(kind)):
            # The only method that all iterators of loaders ask for indices, in the main process.
            patches.wrap(kind, "_next_index", self._wrap_index)
            patches.wrap(kind, "__next__", self._wrap_next)

    def name(self, loader: DataLoader[Any], name: str) -> None:
        """Take note of the name that the script gives to a loader."""
        self._of(loader).name = name

    def opened(self, loader: DataLoader[Any], iterator: object) -> None:
        """Take note of the iterator of a loader, which is another for every epoch or reused."""
        before = self._passes.get(iterator)
        # An iterator with workers fetches its first batches in `__iter__`, before this runs.
        fetched = {} if before is None else before.fetched
        self._passes[iterator] = _Pass(self._of(loader), fetched)

    def _of(self, loader: DataLoader[Any]) -> _Loader:
        found = self._loaders.get(loader)
        if found is None:
            found = self._loaders[loader] = _Loader()
        return found

    def _wrap_index(self, original: Function) -> Function:
        def _next_index(iterator: Any) -> Any:  # noqa: ANN401
            index = original(iterator)
            if not is_traced() and self._guard.active:
                self._guard.quickly(self._fetch, iterator, index)
            return index

        return _next_index

    def _wrap_next(self, original: Function) -> Function:
        def __next__(iterator: Any) -> Any:  # noqa: ANN401, N807
            batch = original(iterator)
            # Under `no_grad` it is a batch of an evaluation.
            if not is_traced() and self._guard.active and torch.is_grad_enabled():
                self._guard.quickly(self._deliver, iterator, batch)
            return batch

        return __next__

    def _fetch(self, iterator: Any, index: object) -> None:  # noqa: ANN401
        began = perf_counter()
        known = self._passes.get(iterator)
        if known is None:
            known = self._passes[iterator] = _Pass(_Loader())
        self._has_loaders = True
        # Workers get several batches ahead: the number says which of them is delivered later.
        known.fetched[getattr(iterator, "_send_idx", 0)] = _indices(index)
        self._guard.spend(perf_counter() - began)

    def _deliver(self, iterator: Any, batch: object) -> None:  # noqa: ANN401
        began = perf_counter()
        known = self._passes.get(iterator)
        # Out of order, the number of a delivered batch is not known.
        if known is None or not getattr(iterator, "_in_order", True):
            return
        number = getattr(iterator, "_rcvd_idx", 1) - 1
        indices = known.fetched.pop(number, None) or array("q")
        step = self.step()
        known.deliver(step)
        contents = BatchContents(batch, is_stored=self.are_stored)
        self._remember(_Delivered(step, known, indices, known.steps == 1, contents))
        self._guard.spend(perf_counter() - began)

    def model_got(self, tensor: Tensor) -> None:
        """Take note of the first tensor that the trained model gets, if there is no data loader.

        A tensor with a graph is left out: it comes from another model, and holding it would hold
        the graph.
        """
        if self._has_loaders or tensor.requires_grad:
            return
        began = perf_counter()
        # Its targets are not in it: it is no batch to be used again.
        contents = BatchContents(tensor, is_stored=False)
        self._remember(_Delivered(self.step(), self._inputs, array("q"), False, contents))
        self._guard.spend(perf_counter() - began)

    def _remember(self, one: _Delivered) -> None:
        self._last.append(one)
        self._hold(one.contents)
        self._held += 1 + len(one.indices)
        while self._held > _MOST and len(self._last) > 1:
            self._held -= 1 + len(self._last.popleft().indices)

    def _hold(self, contents: BatchContents) -> None:
        """Hold the tensors of a batch, and release those of old ones."""
        self._contents.append(contents)
        self._size += contents.size
        self._tensors += len(contents.tensors)
        while len(self._contents) > 1 and (
            self._size > _MOST_BYTES or self._tensors > _MOST_TENSORS or self._contents[0].is_scarce
        ):
            old = self._contents.popleft()
            self._size -= old.size
            self._tensors -= len(old.tensors)
            old.release()

    def of_step(self, step: int, *, is_read: bool = False) -> Iterator[BatchIdentity]:
        """Yield the batches that a step certainly used, as far as they are remembered.

        Args:
            step: Index of the step.
            is_read: Whether to read their tensors, which takes time.
        """
        self._requests += is_read
        # Once the weights are broken, every step asks.
        is_due = self._requests <= _ALL_READ or not self._requests & (self._requests - 1)
        for one in self._used(step):
            held = one.contents.read() if is_read and is_due else None
            if one.indices or held is not None:
                yield _identity(one, held)

    def copies(self, step: int, most: int) -> Iterator[KeptBatch]:
        """Yield copies of the batches that a step certainly used, each up to a size in bytes."""
        for one in self._used(step):
            if one.contents.size <= most:
                copied = one.contents.copied(step, one.source.loader.name)
                if copied is not None:
                    yield copied

    def _used(self, step: int) -> list[_Delivered]:
        before = (one for one in reversed(self._last) if one.step <= step)
        own = list(takewhile(lambda one: one.step == step, before))
        same = [one for one in reversed(own) if one.source is own[0].source]
        if not same or not same[0].source.are_used(len(same), in_first=same[0].is_first):
            return []
        return same


_HELD = tuple(one.name for one in fields(Held))


def _identity(one: _Delivered, held: Held | None) -> BatchIdentity:
    found = BatchIdentity(step=one.step, loader=one.source.loader.name, indices=tuple(one.indices))
    if held is None:
        return found
    return replace(found, **{name: getattr(held, name) for name in _HELD})


def _indices(index: object) -> "array[int] | None":
    """Return the indices of a batch; None if they are no whole numbers."""
    try:
        return array("q", index if isinstance(index, list | tuple) else [index])
    except (TypeError, OverflowError):
        return None
