"""Finds lines that wrote into tensors in place, or wrapped tensors in new parameters."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch._C import DisableTorchFunction
from torch.multiprocessing.reductions import StorageWeakRef

from gradscope.capture.compiler import is_traced
from gradscope.capture.interpreter import uncounted
from gradscope.capture.observed_calls import Args, Kwargs, Observer
from gradscope.capture.source.lines import Line, sequence_number
from gradscope.capture.step.cuts import CutTracker


@contextmanager
def watch_parameters_made(cuts: CutTracker) -> Iterator[None]:
    """Report every tensor that is wrapped as a parameter while the block runs."""
    # `vars`, because attribute access would unwrap the static method.
    kept = vars(nn.Parameter)["__new__"]
    original = nn.Parameter.__new__

    @uncounted
    def noted(
        kind: type[nn.Parameter], data: Tensor | None = None, requires_grad: bool = True
    ) -> nn.Parameter:
        parameter = original(kind, data, requires_grad)
        if not is_traced() and isinstance(data, Tensor):
            # `nn.Parameter(data)` shares the memory of a tensor, but is a leaf without its history.
            cuts.see_wrapped(data, parameter, sys._getframe(1))
        return parameter

    nn.Parameter.__new__ = staticmethod(noted)  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        if nn.Parameter.__new__ is noted:  # else other code has replaced it since
            nn.Parameter.__new__ = kept  # type: ignore[method-assign]


_NO_WRITES = frozenset({"detach_", "rename_", "requires_grad_", "retain_grad", "share_memory_"})

_BY_OPTION = frozenset(
    name
    for name, function in vars(torch.nn.functional).items()
    if "inplace" in getattr(getattr(function, "__code__", None), "co_varnames", ())
)
"""Functions that write in place if their argument `inplace` is true."""


def _in_place_names() -> frozenset[str]:
    named = {name for owner in (Tensor, torch) for name in dir(owner) if name.endswith("_")}
    return frozenset(
        {name for name in named if not name.endswith("__")} - _NO_WRITES | {"__setitem__"}
    )


_VERSIONS = re.compile(r"\[([\d, ]*)\]\].* is at version (\d+); expected version (\d+)")


class Write(NamedTuple):
    """One write into one tensor."""

    operation: str
    line: Line | None
    storage: StorageWeakRef
    """Not an address: memory of a freed tensor may be reused by another one."""
    version: int
    """Version of the tensor after the write."""
    shape: tuple[int, ...]
    number: int
    """Sequence number of the next node at that time."""


class WriteObserver(Observer):
    """Records every in-place write of the forward, without its tensor."""

    names = _in_place_names() | _BY_OPTION

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.earlier: WriteObserver | None = None
        """Observer of the earlier writes, if there is one."""

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether the call writes in place."""
        return name not in _BY_OPTION or bool(kwargs and kwargs.get("inplace"))

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Record the tensors that were written to, if they count versions."""
        written = args[0] if args else None
        with DisableTorchFunction():
            for tensor in written if isinstance(written, list | tuple) else (written,):
                if isinstance(tensor, Tensor) and has_versions(tensor):
                    # A view shares the version counter of its base.
                    storage = StorageWeakRef(tensor.untyped_storage())
                    shape, version = tuple(tensor.shape), tensor._version
                    self.writes.append(
                        Write(name, line, storage, version, shape, sequence_number())
                    )

    def culprit(self, message: str, after: int | None) -> Write | None:
        """Return the first write that invalidated a saved tensor.

        Args:
            message: Message of the exception, which contains the tensor's shape and versions.
            after: Sequence number of the node that saved it.
        """
        told = _VERSIONS.search(message)
        if told is None:
            return None
        shape = tuple(int(size) for size in told[1].split(",") if size.strip())
        found, expected = int(told[2]), int(told[3])
        # A tensor of an earlier forward may be saved by a graph that this one goes on with.
        writes = [*(self.earlier.writes if self.earlier else ()), *self.writes]
        fitting = [
            write
            for write in writes
            if expected < write.version <= found and (after is None or write.number > after)
        ]
        # Several tensors may have this number of writes: take one of this shape without further
        # ones.
        alike = [write for write in fitting if write.shape == shape]
        last = {write.storage: write.version for write in writes}
        return next(
            (
                write
                for choice in (alike, fitting)
                for is_last in (True, False)
                for write in choice
                if not is_last or last[write.storage] == found
            ),
            None,
        )


def has_versions(tensor: Tensor) -> bool:
    """Return whether a tensor counts the writes to its memory."""
    return (
        tensor.layout is torch.strided
        and torch._C._has_storage(tensor)  # not inside transforms of `torch.func`
        and not tensor.is_meta
        and not tensor.is_inference()
    )
