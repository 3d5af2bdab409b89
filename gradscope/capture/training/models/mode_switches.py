"""Tells functions that only switch modes of modules: their callers decide about the mode."""

import ast
import inspect
import textwrap
from functools import lru_cache
from types import CodeType, FrameType

_SWITCHES = frozenset({"eval", "requires_grad_", "train"})


def deciding_frame(frame: FrameType) -> FrameType:
    """Return the frame that decides about a mode: the caller of a function that only switches it.

    Args:
        frame: The user's frame that calls `eval()`.
    """
    caller = frame.f_back
    return frame if caller is None or not _only_switches(frame.f_code) else caller


@lru_cache(maxsize=256)
def _only_switches(code: CodeType) -> bool:
    """Return whether all that a function does is to call `eval()` and the like."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError):
        return False
    function = tree.body[0] if tree.body else None
    if not isinstance(function, ast.FunctionDef):
        return False
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return bool(body) and all(map(_is_switch, body))


def _is_switch(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.For):
        return not statement.orelse and all(map(_is_switch, statement.body))
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    called = statement.value.func
    return isinstance(called, ast.Attribute) and called.attr in _SWITCHES
