"""Says what takes time right now, to the terminal that wants to know."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LISTENERS: list[Callable[[str], None]] = []


def tell_stage(text: str) -> None:
    """Say what begins now, such as `loading model.py`; it lasts until the next stage."""
    for listener in _LISTENERS:
        listener(text)


@contextmanager
def told_to(listener: Callable[[str], None]) -> Iterator[None]:
    """Call a function with each stage that begins in the block."""
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)
