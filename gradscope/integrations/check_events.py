"""Reports each check of `gradscope.testing` to a listener.

The pytest plugin is loaded in every test run. This module lets it listen without importing torch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gradscope.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check in plain values, which can be sent between processes."""

    model: str
    """Class name of the model."""
    passed: bool
    parameters: int
    grad_norm: float | None
    """Global gradient norm; None if no parameter has a gradient."""
    errors: int
    warnings: int
    notes: int
    worst: str
    """First finding, as `GS201 gradient-cut`, or the reason why nothing could be judged; otherwise
    empty.
    """
    location: str
    """Location of the first finding, as `model.py:23`; empty if no line is known."""


_Listener = Callable[[Check], None]
_listeners: list[tuple[_Listener, int | None]] = []


def announce(check: Check) -> None:
    """Report a check to the listener that was added last."""
    if _listeners:
        # Tests may run pytest within pytest: the innermost one made the check.
        listener, _ = _listeners[-1]
        listener(check)


def columns() -> int | None:
    """Return the width of the listener's terminal; None if it is not known."""
    return _listeners[-1][1] if _listeners else None


@contextmanager
def listening(listener: _Listener, columns: int | None = None) -> Iterator[None]:
    """Report the checks made inside the block to a listener.

    Args:
        listener: Called with each check.
        columns: Width of the terminal that shows failed checks. The checks themselves may not know
            it, because a test runner captures what a test writes.
    """
    _listeners.append((listener, columns))
    try:
        yield
    finally:
        _listeners.pop()
