"""The running modules, what wrappers of modules hold, and which frame decides about a mode."""

import ast
import inspect
import textwrap
from collections.abc import Container, Iterator
from functools import lru_cache
from types import CodeType, FrameType

from torch import nn

from gradscope.target.members import plain

_MODULE_FILE = nn.modules.module.__file__
_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def outer_module(frame: FrameType, ignored: Container[int] = ()) -> nn.Module | None:
    """Return the outermost module whose forward is running, except the one being called.

    Args:
        frame: Frame of the call.
        ignored: Modules to ignore, by `id`.
    """
    outer, step = None, calling_frame(frame)
    while step is not None:
        if step.f_code.co_filename == _MODULE_FILE and step.f_code.co_name == "_call_impl":
            found = step.f_locals.get("self")
            outer = outer if id(found) in ignored else found
        step = step.f_back
    return outer


def calling_frame(frame: FrameType) -> FrameType | None:
    """Return the frame that calls the module whose call runs in a frame."""
    step: FrameType | None = frame
    while step is not None and step.f_code.co_filename == _MODULE_FILE:
        step = step.f_back
    return step


def wrapped(module: nn.Module) -> Iterator[nn.Module]:
    """Yield a module, what it wraps, and so on."""
    yield module
    while isinstance(module, _PARALLEL) or plain(module) is not module:
        module = module.module if isinstance(module, _PARALLEL) else plain(module)
        yield module


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
