"""Parses and compiles a script's source once more, without a word about it."""

import ast
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType


def parsed(source: str) -> ast.Module | None:
    """Return the tree of a source, None of what cannot be parsed, as a notebook's cell may be."""
    try:
        with _unwarned():
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None


def compiled(source: str, file: str) -> CodeType | None:
    """Return the code of a source, None of what cannot be compiled."""
    try:
        with _unwarned():
            return compile(source, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return None


@contextmanager
def _unwarned() -> Iterator[None]:
    """Show no warnings: they have been shown when Python compiled the source.

    `warnings.catch_warnings` would make Python forget which warnings of the script's it has shown.
    """
    shown = warnings._showwarnmsg  # type: ignore[attr-defined]
    warnings._showwarnmsg = lambda message: None  # type: ignore[attr-defined]
    try:
        yield
    finally:
        warnings._showwarnmsg = shown  # type: ignore[attr-defined]
