"""What `gradscope.testing` tells of each check that it makes, to whoever listens.

It is a module of its own so that the pytest plugin, which is there in every test run, can listen
without importing torch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check in a few plain values, which travel between processes as they are."""

    model: str
    """The model's class."""
    passed: bool
    parameters: int
    grad_norm: float | None
    """Global gradient norm; None where no parameter has a gradient."""
    errors: int
    warnings: int
    notes: int
    worst: str
    """What was found first, as `GS201 gradient-cut`, or why nothing could be said; else empty."""
    location: str
    """Where that is, as `model.py:23`; empty where no line is known."""


_Listener = Callable[[Check], None]
_listeners: list[tuple[_Listener, int | None]] = []


def announce(check: Check) -> None:
    """Tell the one who began to listen last."""
    if _listeners:
        listener, _ = _listeners[-1]
        listener(check)


def columns() -> int | None:
    """Return how wide the listener's terminal is; None where that is not known."""
    return _listeners[-1][1] if _listeners else None


@contextmanager
def listening(listener: _Listener, columns: int | None = None) -> Iterator[None]:
    """Be told of the checks that are made inside of the block.

    Args:
        listener: Is given each of them.
        columns: Of the terminal on which failed ones are told, where those who make them cannot
            see it: a test runner captures what a test writes.
    """
    _listeners.append((listener, columns))
    try:
        yield
    finally:
        _listeners.pop()
