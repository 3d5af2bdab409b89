"""Finds the variables of a script that hold leaves of a graph which are no parameters."""

import ast
import functools
import linecache
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import NamedTuple

from torch import Tensor, nn

from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import (
    assignments,
    is_only_made_at_construction,
    tree_of,
)
from gradscope.capture.training.locations import Locations
from gradscope.capture.training.steps.update_lines import updates

_OF_PARAMETERS = frozenset({"p", "param", "params", "parameter", "w", "weight", "bias", "torch"})

_READERS = frozenset({"autograd", "register_hook", "retain_grad", "jacobian", "hessian"})

_CONSTANT = frozenset({"Parameter", "full", "ones", "ones_like", "tensor", "zeros", "zeros_like"})
"""Functions that make what is to be learned: data come from others."""
_MOST_OF_DATA = 64
"""Number of elements above which `torch.tensor` may hold data."""


class ScriptLeaf(NamedTuple):
    """A leaf that a variable or an attribute of a script holds."""

    name: str
    line: Line | None
    """Line that makes it require grad, None if it is not known."""
    is_kept: bool
    """Whether it is made once, before the loop, as what is to be learned is."""


def unread_leaves(leaves: Iterable[Tensor]) -> Iterator[tuple[Tensor, ScriptLeaf]]:
    """Yield the leaves that the calling script holds, and whose gradient is unread.

    Args:
        leaves: Leaves of a graph that are neither parameters nor held by an optimizer.
    """
    wanted = {
        id(leaf): leaf
        for leaf in leaves
        # A hook reads the gradient.
        if type(leaf) in (Tensor, nn.Parameter) and not leaf._backward_hooks
    }
    if not wanted:
        return
    for frame in Locations().users(sys._getframe(1)):
        # Frames further out hold the leaf no more, as those of what runs the script.
        if reads_gradients(frame.f_code.co_filename):
            return
        for value, found in _held(frame):
            # A parameter that is made anew may be part of a search.
            if id(value) in wanted and (found.is_kept or not isinstance(value, nn.Parameter)):
                yield wanted.pop(id(value)), found


def _held(frame: FrameType) -> Iterator[tuple[object, ScriptLeaf]]:
    """Yield the tensors of a frame's variables, and those of the object whose method it runs."""
    file = frame.f_code.co_filename
    for name, value in frame.f_locals.items():
        if isinstance(value, Tensor):
            statement = _made(frame, name)
            line = None if statement is None else Line(frame.f_code, statement.lineno)
            is_kept = (
                statement is not None
                and _is_before_loop(file, statement.lineno, frame.f_lineno)
                and _is_to_learn(statement, value)
                and not _is_written(file, name)
            )
            yield value, ScriptLeaf(name, line, is_kept)
    owner = frame.f_locals.get("self")
    # What a module holds is searched by `probe_leaves`.
    if owner is None or isinstance(owner, nn.Module):
        return
    for attribute, value in getattr(owner, "__dict__", {}).items():
        line = assignments(type(owner)).get(attribute) if isinstance(value, Tensor) else None
        if line is not None and is_only_made_at_construction(type(owner), attribute):
            made = _statement(line.code.co_filename, line.number)
            is_kept = made is not None and _is_to_learn(made, value)
            is_kept = is_kept and not _is_written(file, f"self.{attribute}")
            if is_kept:
                yield value, ScriptLeaf(attribute, line, is_kept)


@functools.lru_cache(maxsize=64)
def reads_gradients(file: str) -> bool:
    """Return whether code in a file may read the gradient of an input."""
    # Without its source, code may read anything: report nothing rather than a false alarm.
    if not linecache.getlines(file):
        return True
    # An update by hand names its parameters otherwise: `for p in (scale, offset): p -= p.grad`.
    if any(updates(file)):
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


def _made(frame: FrameType, name: str) -> ast.stmt | None:
    """Return the only statement of a function that makes a variable require grad."""
    within = {number for *_, number in frame.f_code.co_lines() if number is not None}
    found = [
        node
        for node in ast.walk(tree_of(frame.f_code.co_filename))
        if isinstance(node, ast.stmt) and node.lineno in within and _requires(node, name)
    ]
    return found[0] if len({one.lineno for one in found}) == 1 else None


def _requires(statement: ast.stmt, name: str) -> bool:
    text = ast.unparse(statement) if not hasattr(statement, "body") else ""
    makes = "requires_grad" in text or "Parameter(" in text
    return makes and text.startswith((f"{name} =", f"{name}.requires_grad"))


def _statement(file: str, line: int) -> ast.stmt | None:
    nodes = ast.walk(tree_of(file))
    return next((one for one in nodes if isinstance(one, ast.Assign) and one.lineno == line), None)


def _is_before_loop(file: str, made: int, running: int) -> bool:
    """Return whether a line is outside of a loop that is running."""
    for one in ast.walk(tree_of(file)):
        if isinstance(one, ast.For | ast.While):
            lines = range(one.lineno, (one.end_lineno or one.lineno) + 1)
            if running in lines and made not in lines:
                return True
    return False


def _is_to_learn(statement: ast.stmt, value: Tensor) -> bool:
    """Return whether a statement makes a tensor of constants that requires grad."""
    match statement:
        case ast.Assign(value=ast.Call() as call):
            called = {
                ast.unparse(one.func).rpartition(".")[2]
                for one in ast.walk(call)
                if isinstance(one, ast.Call)
            }
        case _:
            return False
    if not called & _CONSTANT or not called <= _CONSTANT | {"requires_grad_"}:
        return False
    return "tensor" not in called or value.numel() <= _MOST_OF_DATA


def _is_written(file: str, name: str) -> bool:
    """Return whether a file may change a variable's values, or reads its gradient."""
    return any(_may_write(one, name) for one in ast.walk(tree_of(file)))


def _may_write(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Attribute(value=owner, attr=attribute):
            is_write = attribute.endswith("_") and attribute != "requires_grad_"
            return (is_write or attribute in ("data", "grad")) and ast.unparse(owner) == name
        case ast.AugAssign(target=target) | ast.Subscript(value=target, ctx=ast.Store()):
            return ast.unparse(target) == name
        # What gets a list of tensors may change each, as torch._foreach_mul_ does.
        case ast.List(elts=elements, ctx=ast.Load()) | ast.Tuple(elts=elements, ctx=ast.Load()):
            return any(ast.unparse(one) == name for one in elements)
    return False
