"""Finds lines and communication hooks that divide or multiply by the number of ranks."""

import ast
import functools
import re
import sysconfig
from collections.abc import Iterator
from typing import Any, Literal

from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import code_at, tree_of

_NAMES = re.compile(
    r"^(world|world_?size|n_?gpus?|num_?gpus|num_?processes|n_?ranks|num_?ranks|nprocs)$",
    re.IGNORECASE,
)

_SOURCES = re.compile(r"get_world_size|WORLD_SIZE|num_processes")

Operation = Literal["divided", "multiplied"]


_DIVISIONS = ("div", "true_divide", "mul", "mean", "lerp", "einsum")
"""Beginnings of the names of functions that can divide a sum."""

_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))


def rank_arithmetic(file: str) -> Iterator[tuple[Operation, str, Line]]:
    """Yield what is divided or multiplied by the number of ranks, as `loss`, and the line.

    The subject is the variable that holds the result, `return` for a function's result, and empty
    for a result that is used at once.
    """
    tree = tree_of(file)
    counts = frozenset(_counts(tree))
    forms = _Forms(counts, frozenset(_shares(tree, counts)))
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt):
            continue
        for operation, subject in forms.of(node):
            code = code_at(file, node.lineno)
            if code is not None:
                yield operation, subject, Line(code, node.lineno)


class _Forms:
    """Recognises arithmetic with the number of ranks."""

    def __init__(self, counts: frozenset[str], shares: frozenset[str]) -> None:
        """Begin with the variables that hold the number of ranks, and one over it."""
        self._counts = counts
        self._shares = shares

    def of(self, node: ast.stmt) -> Iterator[tuple[Operation, str]]:
        """Yield the operations of a statement with the number of ranks, and their subjects."""
        found: tuple[Operation, ...]
        match node:
            case ast.AugAssign(op=operator, target=target, value=value):
                operation = self._operation(operator, value)
                found = () if operation is None else (operation,)
                subject = ast.unparse(target)
            case ast.Assign(targets=[target], value=value):
                found, subject = self._within(value), ast.unparse(target)
            case ast.Return(value=ast.expr() as value):
                found, subject = self._within(value), "return"
            case ast.Expr(value=value):
                found, subject = self._within(value), ""
            case _:
                return
        yield from ((one, subject) for one in found)

    def _within(self, value: ast.expr) -> tuple[Operation, ...]:
        """Return the operations within an expression, each once."""
        return tuple(dict.fromkeys(one for node in ast.walk(value) for one in self._of(node)))

    def _of(self, node: ast.AST) -> Iterator[Operation]:
        match node:
            case ast.BinOp(op=ast.Mult(), left=left, right=right):
                for side in (left, right):
                    if (operation := self._operation(node.op, side)) is not None:
                        yield operation
            case ast.BinOp(op=operator, right=right):
                if (operation := self._operation(operator, right)) is not None:
                    yield operation
            case ast.Call(func=ast.Attribute(attr="div_" | "div"), args=[divisor]):
                if _is_count(divisor, self._counts):
                    yield "divided"

    def _operation(self, operator: ast.operator, operand: ast.expr) -> Operation | None:
        """Return what an operator does with the number of ranks, or with one over it."""
        is_count = _is_count(operand, self._counts)
        is_share = isinstance(operand, ast.Name) and operand.id in self._shares
        match operator:
            case ast.Div() if is_count:
                return "divided"
            case ast.Mult() if is_share:
                return "divided"
            case ast.Mult() if is_count:
                return "multiplied"
        return None


def _counts(tree: ast.AST) -> Iterator[str]:
    """Yield the variables that hold the number of ranks."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                # `batch_size / world_size` is a size, and no number of ranks.
                is_quotient = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div)
                if not is_quotient and _SOURCES.search(ast.unparse(value)):
                    yield name
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                for target, value in zip(names, values, strict=False):
                    if isinstance(target, ast.Name) and _SOURCES.search(ast.unparse(value)):
                        yield target.id


def _shares(tree: ast.AST, counts: frozenset[str]) -> Iterator[str]:
    """Yield the variables that hold one over the number of ranks."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.BinOp(op=ast.Div(), left=ast.Constant(), right=right),
            ) if _is_count(right, counts):
                yield name


def _is_count(value: ast.expr, counts: frozenset[str]) -> bool:
    match value:
        case ast.Name(id=name):
            return name in counts or bool(_NAMES.match(name))
        case ast.Attribute(attr=name):
            return bool(_NAMES.match(name))
        case ast.Call(func=ast.Name(id="float" | "int"), args=[inner]):
            return _is_count(inner, counts)
        case ast.Call(func=function):
            return bool(_SOURCES.search(ast.unparse(function)))
    return False


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
