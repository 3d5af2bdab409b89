"""Keeps the program's random numbers from what gradscope imports: rich draws some."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def kept_random() -> Iterator[None]:
    """Leave Python's generator of random numbers after the block as it was before."""
    # Taken from `sys.modules`, as the program has it: to import it here could give another.
    random: Any = sys.modules.get("random")
    if not hasattr(random, "getstate"):
        yield
        return
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)
