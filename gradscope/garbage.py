"""Python's garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_COLLECTED_AFTER = 100_000
"""New objects after which garbage is collected: a recording has hundreds of thousands."""

_usual_collection = gc.get_threshold()


def collect_rarely() -> None:
    """Collect garbage more rarely than Python does: no code of the user's runs yet."""
    gc.set_threshold(_COLLECTED_AFTER, *_usual_collection[1:])


def collect_as_usual() -> None:
    """Collect garbage as Python does: the user's code runs now."""
    gc.set_threshold(*_usual_collection)


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Collect garbage more rarely than Python does inside the block."""
    before = gc.get_threshold()
    gc.set_threshold(_COLLECTED_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Pause the garbage collector, which would traverse a million new objects repeatedly."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
