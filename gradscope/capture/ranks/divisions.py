"""Finds the lines of a script that divide something by the number of ranks."""

import ast
import re
from collections.abc import Iterator

from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import code_at, tree_of

_NAMES = re.compile(
    r"^(world|world_?size|n_?gpus?|num_?gpus|num_?processes|n_?ranks|num_?ranks|nprocs)$",
    re.IGNORECASE,
)
_SOURCES = re.compile(r"get_world_size|WORLD_SIZE|num_processes")
RETURNED = "return"
"""Subject of a quotient that a function returns."""


def divisions(file: str) -> Iterator[tuple[str, Line]]:
    """Yield what is divided by the number of ranks, as `loss`, and the line.

    The subject is the variable that holds the quotient, `return` for a function's result, and empty
    for a quotient that is used at once.
    """
    tree = tree_of(file)
    known = frozenset(_assigned(tree))
    shares = frozenset(_shares(tree, known))
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and (subject := _subject(node, known, shares)) is not None:
            code = code_at(file, node.lineno)
            if code is not None:
                yield subject, Line(code, node.lineno)


def _assigned(tree: ast.AST) -> Iterator[str]:
    """Yield the variables that hold the number of ranks."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                is_quotient = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div)
                if not is_quotient and _SOURCES.search(ast.unparse(value)):
                    yield name
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                for target, value in zip(names, values, strict=False):
                    if isinstance(target, ast.Name) and _SOURCES.search(ast.unparse(value)):
                        yield target.id


def _shares(tree: ast.AST, known: frozenset[str]) -> Iterator[str]:
    """Yield the variables that hold one over the number of ranks."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.BinOp(op=ast.Div(), left=ast.Constant(), right=right),
            ) if _is_world(right, known):
                yield name


def _subject(node: ast.stmt, known: frozenset[str], shares: frozenset[str]) -> str | None:
    """Return what a statement divides by the number of ranks, None if it does not."""
    match node:
        case ast.AugAssign(op=ast.Div(), target=target, value=value) if _is_world(value, known):
            return ast.unparse(target)
        case ast.AugAssign(op=ast.Mult(), target=target, value=ast.Name(id=n)) if n in shares:
            return ast.unparse(target)
        case ast.Assign(targets=[target], value=value) if _has_division(value, known, shares):
            return ast.unparse(target)
        case ast.Return(value=value) if value is not None and _has_division(value, known, shares):
            return RETURNED
        case ast.Expr(value=value) if _has_division(value, known, shares):
            return ""
    return None


def _has_division(value: ast.expr, known: frozenset[str], shares: frozenset[str]) -> bool:
    for node in ast.walk(value):
        match node:
            case ast.BinOp(op=ast.Mult(), left=left, right=right):
                if any(isinstance(one, ast.Name) and one.id in shares for one in (left, right)):
                    return True
            case ast.BinOp(op=ast.Div(), right=right) if _is_world(right, known):
                return True
            case ast.Call(func=ast.Attribute(attr="div_" | "div"), args=[divisor]):
                if _is_world(divisor, known):
                    return True
    return False


def _is_world(value: ast.expr, known: frozenset[str]) -> bool:
    match value:
        case ast.Name(id=name):
            return name in known or bool(_NAMES.match(name))
        case ast.Attribute(attr=name):
            return bool(_NAMES.match(name))
        case ast.Call(func=ast.Name(id="float" | "int"), args=[inner]):
            return _is_world(inner, known)
        case ast.Call(func=function):
            return bool(_SOURCES.search(ast.unparse(function)))
    return False
