"""Finds the lines of a file that change weights by hand, and those that fail to."""

import ast
import functools
from collections.abc import Callable, Iterable, Iterator

from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import code_at, tree_of
from gradscope.capture.training.locations import NOWHERE, Location

_OUT_OF_PLACE = frozenset({"add", "addcdiv", "addcmul", "lerp", "sub", "subtract"})
"""Methods of a tensor that return an updated copy."""


def only_line_of(find: Callable[[str], Iterable[int]], files: Iterable[str]) -> Location:
    """Return the statement that a search finds in the first file that has one.

    It is `NOWHERE` if there are several functions with such statements.
    """
    for file in dict.fromkeys(files):
        found = [Line(code, n) for n in find(file) if (code := code_at(file, n)) is not None]
        # Of several functions, the source does not tell which one has run.
        if len({line.code.co_firstlineno for line in found}) > 1:
            return NOWHERE
        if found:
            return Location(found[0], found[0], None, 0)
    return NOWHERE


def updates(file: str) -> Iterator[int]:
    """Yield the lines of a file that change something in place by a gradient."""
    for one in ast.walk(tree_of(file)):
        match one:
            case ast.AugAssign(target=changed, value=value):
                given = [value]
            case ast.Assign(targets=[ast.Attribute(value=changed, attr="data")], value=value):
                given = [value]
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=changed, attr=name), args=args)):
                given = args if name.endswith("_") else []
            case _:
                continue
        if any(map(_reads_gradient, given)) and not _reads_gradient(changed):
            yield one.lineno


@functools.lru_cache(maxsize=64)
def erasures(file: str) -> tuple[int, ...]:
    """Return the lines of a file that set gradients, or write to them in place."""
    found = []
    for one in ast.walk(tree_of(file)):
        if not isinstance(one, ast.stmt):
            continue
        match one:
            case ast.Assign(targets=[changed]) | ast.AugAssign(target=changed):
                is_erasing = _is_gradient(changed) or (
                    isinstance(changed, ast.Attribute | ast.Subscript)
                    and _is_gradient(changed.value)
                )
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=changed, attr=name))):
                is_erasing = name.endswith("_") and _reads_gradient(changed)
            case _:
                is_erasing = False
        if is_erasing:
            found.append(one.lineno)
    return tuple(found)


def lost_updates(file: str) -> Iterator[int]:
    """Yield the lines of a file that compute new weights in a loop and do not store them.

    The loop reads gradients. It assigns a sum or difference to its own variable, which leaves the
    tensor as it is, or drops the result of a method that returns a copy.
    """
    for loop in ast.walk(tree_of(file)):
        if not isinstance(loop, ast.For) or not any(map(_reads_gradient, loop.body)):
            continue
        own = {one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
        if not _stores(loop, own):
            statements = (one for one in ast.walk(loop) if isinstance(one, ast.stmt))
            yield from (one.lineno for one in statements if _is_lost(one, own))


def is_lost_average(line: Line) -> bool:
    """Return whether a line computes a new value for a variable of its loop, and loses it.

    The loop neither stores what it computes nor reads it later on.
    """
    for loop in ast.walk(tree_of(line.code.co_filename)):
        if not isinstance(loop, ast.For) or not _contains(loop, line.number):
            continue
        own = {one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
        inner = [one for one in ast.walk(loop) if isinstance(one, ast.stmt) and one is not loop]
        found = [one for one in inner if _contains(one, line.number) and _is_dropped(one, own)]
        if found and not _stores(loop, own) and not _reads_after(loop, found[0], own):
            return True
    return False


def _contains(statement: ast.stmt, number: int) -> bool:
    return statement.lineno <= number <= (statement.end_lineno or statement.lineno)


def _is_dropped(statement: ast.stmt, variables: set[str]) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name in variables
    return _is_lost(statement, variables)


def _reads_after(loop: ast.For, statement: ast.stmt, variables: set[str]) -> bool:
    """Return whether a loop reads one of its variables behind a statement."""
    return any(
        isinstance(one, ast.Name)
        and one.id in variables
        and one.lineno > statement.lineno
        and isinstance(one.ctx, ast.Load)
        and not _contains(statement, one.lineno)
        for one in ast.walk(loop)
    )


def _is_lost(statement: ast.stmt, variables: set[str]) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp(left=left) as value):
            is_step = isinstance(value.op, ast.Add | ast.Sub)
            return name in variables and is_step and _tensor(left) == name
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(func=ast.Attribute(value=left, attr=method)),
        ):
            return name in variables and method in _OUT_OF_PLACE and _tensor(left) == name
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=left, attr=method))):
            return method in _OUT_OF_PLACE and _tensor(left) in variables
    return False


def _stores(loop: ast.For, variables: set[str]) -> bool:
    """Return whether a loop writes to one of its variables in place, or hands the result on."""
    for one in ast.walk(loop):
        match one:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=name), attr="data")]):
                is_stored = name in variables
            case ast.AugAssign(target=changed):
                is_stored = _tensor(changed) in variables
            case ast.Call(func=ast.Attribute(attr="append" | "copy_" | "set_" | "setattr")):
                is_stored = True
            case ast.Call(func=ast.Name(id="setattr")) | ast.Yield() | ast.Return():
                is_stored = True
            case ast.Assign(targets=[ast.Subscript()]):
                is_stored = True
            case _:
                is_stored = False
        if is_stored:
            return True
    return False


def _tensor(expression: ast.expr) -> str | None:
    """Return the variable of `p` or `p.data`."""
    if isinstance(expression, ast.Attribute) and expression.attr == "data":
        expression = expression.value
    return expression.id if isinstance(expression, ast.Name) else None


def _reads_gradient(expression: ast.AST) -> bool:
    return any(_is_gradient(one) for one in ast.walk(expression))


def _is_gradient(expression: ast.AST) -> bool:
    return isinstance(expression, ast.Attribute) and expression.attr == "grad"
