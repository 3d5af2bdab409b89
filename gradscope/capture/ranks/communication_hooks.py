"""Reads the source of DDP's communication hooks: a hook has to divide what it sums."""

import ast
import functools
import sysconfig
from collections.abc import Iterator
from typing import Any

from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import code_at, tree_of

_DIVISIONS = ("div", "true_divide", "mul", "mean", "lerp", "einsum")
"""Beginnings of the names of functions that can divide a sum."""

_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))


def undivided_sum(hook: Any) -> Line | None:  # noqa: ANN401 - any callable
    """Return the line of a script's hook that sums gradients, None if the hook may divide them.

    A division may stand in a function of the same file that the hook calls. A hook that calls
    another hook is not judged.
    """
    while isinstance(hook, functools.partial):
        hook = hook.func
    code = getattr(getattr(hook, "__func__", hook), "__code__", None)
    if code is None or code.co_filename.startswith(_INSTALLED):
        return None
    tree = tree_of(code.co_filename)
    functions = {one.name: one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}
    start = functions.get(code.co_name)
    if start is None:
        return None
    nodes = list(_reached(start, functions))
    sums = [one for node in nodes if (one := _line_of_sum(node)) is not None]
    if not sums or any(map(_may_divide, nodes)):
        return None
    found = code_at(code.co_filename, sums[0])
    return None if found is None else Line(found, sums[0])


def _reached(start: ast.FunctionDef, functions: dict[str, ast.FunctionDef]) -> Iterator[ast.AST]:
    """Yield the nodes of a function, and of those of its file that it names."""
    waiting, seen = [start], {start.name}
    while waiting:
        for node in ast.walk(waiting.pop()):
            yield node
            name = _name(node)
            if name in functions and name not in seen:
                seen.add(name)
                waiting.append(functions[name])


def _name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _line_of_sum(node: ast.AST) -> int | None:
    match node:
        case ast.Call(func=function) if _name(function).startswith("all_reduce"):
            is_sum = "ReduceOp" not in (text := ast.unparse(node)) or "ReduceOp.SUM" in text
            return node.lineno if is_sum else None
    return None


def _may_divide(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(op=op) | ast.AugAssign(op=op):
            # Scripts also write `* (1 / n)` and `* n ** -1`.
            return isinstance(op, ast.Div | ast.FloorDiv | ast.Mult | ast.Pow)
        case ast.Call(func=function):
            name = _name(function).removeprefix("_foreach_")
            return name.startswith(_DIVISIONS) or name.endswith("_hook")
        case ast.Attribute(attr="AVG" | "PREMUL_SUM"):
            return True
    return False
