"""Tells the user of a running script something, on standard error."""

import sys
from contextlib import suppress


def tell(text: str) -> None:
    """Write a line to standard error, if the script has left it open."""
    if sys.stderr is not None:  # `print` would write to standard output
        with suppress(OSError, ValueError):
            print(f"gradscope: {text}", file=sys.stderr, flush=True)  # noqa: T201
