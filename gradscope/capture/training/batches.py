"""Remembers which samples the batches of a script's data loaders have.

Nothing is drawn and no batch is fetched for it: the samplers' own indices are kept as they pass.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as loaders

from gradscope.capture.compiler import is_traced
from gradscope.capture.training.guard import Function, Guard, Patches
from gradscope.recording.evidence.batches import BatchIdentity

_MOST = 65_536
"""Maximum number of indices that are remembered."""

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
        if self.loader.is_ahead or count != self.first_count:
            return False
        return not in_first or count == (self.loader.usual or 1)


@dataclass(frozen=True, slots=True)
class _Delivered:
    """A batch that the script got."""

    step: int
    source: _Pass
    indices: "array[int]"
    is_first: bool
    """Whether the step is the first that gets batches in this iteration."""


class Batches:
    """The last batches that the script got from data loaders."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._loaders: WeakKeyDictionary[DataLoader[Any], _Loader] = WeakKeyDictionary()
        self._passes: WeakKeyDictionary[object, _Pass] = WeakKeyDictionary()
        self._last: deque[_Delivered] = deque()
        self._held = 0
        self.step: Callable[[], int]
        """Returns the index of the running step."""

    def install(self, patches: Patches) -> None:
        """Start observing, if torch has what is observed."""
        kind = getattr(loaders, "_BaseDataLoaderIter", None)
        if kind is not None and {"_next_index", "__next__"} <= set(vars(kind)):
            patches.wrap(kind, "_next_index", self._wrap_index)
            patches.wrap(kind, "__next__", self._wrap_next)

    def name(self, loader: DataLoader[Any], name: str) -> None:
        """Take note of the name that the script gives to a loader."""
        self._of(loader).name = name

    def opened(self, loader: DataLoader[Any], iterator: object) -> None:
        """Take note of the iterator of a loader, which is another for every epoch or reused."""
        before = self._passes.get(iterator)
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
            if not is_traced() and self._guard.active and torch.is_grad_enabled():
                self._guard.quickly(self._deliver, iterator)
            return batch

        return __next__

    def _fetch(self, iterator: Any, index: object) -> None:  # noqa: ANN401
        known = self._passes.get(iterator)
        if known is None:
            known = self._passes[iterator] = _Pass(_Loader())
        known.fetched[getattr(iterator, "_send_idx", 0)] = _indices(index)

    def _deliver(self, iterator: Any) -> None:  # noqa: ANN401
        known = self._passes.get(iterator)
        if known is None or not getattr(iterator, "_in_order", True):
            return
        number = getattr(iterator, "_rcvd_idx", 1) - 1
        indices = known.fetched.pop(number, None)
        step = self.step()
        known.deliver(step)
        if indices is None:
            return
        self._last.append(_Delivered(step, known, indices, known.steps == 1))
        self._held += len(indices)
        while self._held > _MOST and len(self._last) > 1:
            self._held -= len(self._last.popleft().indices)

    def of_step(self, step: int) -> Iterator[BatchIdentity]:
        """Yield the batches that a step certainly used, as far as they are remembered."""
        before = (one for one in reversed(self._last) if one.step <= step)
        own = list(takewhile(lambda one: one.step == step, before))
        same = [one for one in reversed(own) if one.source is own[0].source]
        if not same or not same[0].source.are_used(len(same), in_first=same[0].is_first):
            return
        for one in same:
            indices = tuple(one.indices)
            yield BatchIdentity(step=step, loader=one.source.loader.name, indices=indices)


def _indices(index: object) -> "array[int] | None":
    """Return the indices of a batch; None if they are no whole numbers."""
    try:
        return array("q", index if isinstance(index, list | tuple) else [index])
    except (TypeError, OverflowError):
        return None
