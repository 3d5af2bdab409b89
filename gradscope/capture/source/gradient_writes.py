"""Finds loops that scale or clamp gradients by hand where no step can use the result."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from gradscope.recording.evidence.training import WriteWay

_SCALING = frozenset({"clamp_", "clip_", "div_", "mul_"})
_LIMITED = frozenset({"clamp", "clip", "div", "mul"})
_KEEPING = frozenset({"append", "clone", "copy_", "deepcopy"})
"""Calls of code that keeps the gradients that it writes."""
_SCHEDULES = ("lr", "plateau", "sched", "warm")
_COMPOUND = (ast.For, ast.If, ast.Match, ast.Try, ast.While, ast.With)


class MisplacedWrite(NamedTuple):
    """A statement that writes gradients in vain."""

    line: int
    backward: int
    """Line of the loop's backward."""
    way: WriteWay


def misplaced_writes(tree: ast.Module) -> Iterator[MisplacedWrite]:
    """Yield the statements of training loops that scale gradients after the step or too early.

    Only loops with one backward, and with steps and zeroing that no branch skips.
    """
    writers = {
        one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and _scales(one)
    }
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For | ast.While):
            yield from _in_loop(loop.body, writers)


def _in_loop(body: list[ast.stmt], writers: set[str]) -> Iterator[MisplacedWrite]:
    calls = [_call(one) for one in body]
    backward = [at for at, name in enumerate(calls) if name == "backward"]
    steps = [at for at, name in enumerate(calls) if name == "step"]
    zeros = [at for at, name in enumerate(calls) if name == "zero_grad"]
    writes = [at for at, one in enumerate(body) if _is_write(one, writers)]
    # A branch may step, zero or go on by itself.
    is_branching = any(
        isinstance(one, _COMPOUND) and at not in writes and _mentions_loop_calls(one)
        for at, one in enumerate(body)
    )
    if len(backward) != 1 or not (steps and zeros and writes) or is_branching:
        return
    (at,), first, last = backward, body[backward[0]].lineno, max(steps)
    # Zeroed between backward and step, gradients have another fault.
    if at > min(steps) or any(at < zero < last for zero in zeros):
        return
    if all(write > last for write in writes):
        yield from (MisplacedWrite(body[one].lineno, first, "late") for one in writes)
    elif all(write < at for write in writes):
        yield from (MisplacedWrite(body[one].lineno, first, "early") for one in writes)


def _call(statement: ast.stmt) -> str | None:
    """Return the method that a statement calls; None for steps of schedules."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return None
    function = statement.value.func
    if not isinstance(function, ast.Attribute):
        return None
    owner = ast.unparse(function.value).lower()
    is_schedule = function.attr == "step" and any(word in owner for word in _SCHEDULES)
    return None if is_schedule else function.attr


def _is_write(statement: ast.stmt, writers: set[str]) -> bool:
    if isinstance(statement, ast.For):
        return _scales(statement)
    value = statement.value if isinstance(statement, ast.Assign | ast.Expr) else None
    called = value.func if isinstance(value, ast.Call) else None
    return isinstance(called, ast.Name) and called.id in writers


def _scales(tree: ast.AST) -> bool:
    """Return whether code scales gradients in place, and does not keep them."""
    is_scaling = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in _KEEPING or name in ("backward", "step"):
                return False
            is_scaling |= name in _SCALING and _is_of_gradient(node.func.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult | ast.Div):
            is_scaling |= _is_of_gradient(node.target)
        elif isinstance(node, ast.Assign) and any(map(_is_gradient, node.targets)):
            is_scaling |= _is_limited(node.value)
    return is_scaling


def _is_gradient(target: ast.expr) -> bool:
    """Return whether a target is `….grad` or `….grad.data`."""
    if isinstance(target, ast.Attribute) and target.attr == "data":
        target = target.value
    return isinstance(target, ast.Attribute) and target.attr == "grad"


def _is_limited(value: ast.expr) -> bool:
    called = value.func if isinstance(value, ast.Call) else None
    is_limit = isinstance(called, ast.Attribute) and called.attr in _LIMITED
    is_product = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult | ast.Div)
    return (is_limit or is_product) and _is_of_gradient(value)


def _is_of_gradient(tree: ast.AST) -> bool:
    return any(isinstance(one, ast.Attribute) and one.attr == "grad" for one in ast.walk(tree))


def _mentions_loop_calls(tree: ast.AST) -> bool:
    return any(
        isinstance(one, ast.Break | ast.Continue)
        or (isinstance(one, ast.Attribute) and one.attr in ("backward", "step", "zero_grad"))
        for one in ast.walk(tree)
    )
