"""Finds the inputs of a script's forward that require grad although nothing reads their gradient.

A script may read `x.grad` long after its backward. Its source tells: where no attribute `grad` is
read of anything but parameters, and `autograd.grad` and hooks do not occur, nothing can read it.
"""

import ast
import functools
import linecache
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import NamedTuple

from torch import Tensor, nn

from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import tree_of
from gradscope.capture.training.locations import Locations

_OF_PARAMETERS = frozenset({"p", "param", "params", "parameter", "w", "weight", "bias", "torch"})
_READERS = frozenset({"autograd", "register_hook", "retain_grad", "jacobian", "hessian"})


class ScriptInput(NamedTuple):
    """A tensor that a script gives to its model."""

    name: str
    line: Line | None
    """Line that makes it require grad, None if it is not known."""


def unread_inputs(leaves: Iterable[Tensor]) -> Iterator[tuple[Tensor, ScriptInput]]:
    """Yield the leaves that a variable of the calling script holds, and whose gradient is unread.

    Args:
        leaves: Leaves of a graph that are neither parameters nor held by an optimizer.
    """
    wanted = {
        id(leaf): leaf
        for leaf in leaves
        if type(leaf) is Tensor and not isinstance(leaf, nn.Parameter) and not leaf._backward_hooks
    }
    if not wanted:
        return
    frames = Locations().users(sys._getframe(1))
    if any(_reads_gradients(frame.f_code.co_filename) for frame in frames):
        return
    for frame in frames:
        for name, value in frame.f_locals.items():
            if id(value) in wanted:
                yield wanted.pop(id(value)), ScriptInput(name, _line(frame, name))


@functools.lru_cache(maxsize=64)
def _reads_gradients(file: str) -> bool:
    """Return whether code in a file may read the gradient of an input."""
    if not linecache.getlines(file):
        return True
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Attribute):
            if node.attr in _READERS:
                return True
            if node.attr == "grad" and not _is_of_parameter(node.value):
                return True
        elif isinstance(node, ast.Constant) and node.value == "grad":
            return True
    return False


def _is_of_parameter(owner: ast.expr) -> bool:
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return name in _OF_PARAMETERS


def _line(frame: FrameType, name: str) -> Line | None:
    """Return the only line of a function that makes a variable require grad."""
    code = frame.f_code
    within = {number for *_, number in code.co_lines() if number is not None}
    found = {
        node.lineno
        for node in ast.walk(tree_of(code.co_filename))
        if isinstance(node, ast.stmt) and node.lineno in within and _requires(node, name)
    }
    return Line(code, found.pop()) if len(found) == 1 else None


def _requires(statement: ast.stmt, name: str) -> bool:
    text = ast.unparse(statement) if not hasattr(statement, "body") else ""
    return "requires_grad" in text and text.startswith((f"{name} =", f"{name}.requires_grad"))
