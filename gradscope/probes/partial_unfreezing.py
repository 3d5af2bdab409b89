"""Finds functions that freeze a model, use it, and unfreeze only a part of it."""

import ast
from collections.abc import Iterator
from typing import NamedTuple


class _Switch(NamedTuple):
    """A statement that freezes or unfreezes something."""

    what: str
    """The module, as it is written."""
    is_on: bool
    """Whether it requires grad afterwards."""
    line: int


def partly_unfrozen(tree: ast.AST) -> Iterator[tuple[int, int]]:
    """Yield the line that freezes a whole, and the one that unfreezes a part of it.

    Whoever freezes all but a part does both at once. A use of the whole in between shows that the
    whole was to be frozen for this use alone.
    """
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _in_body(function.body)


def _in_body(body: list[ast.stmt]) -> Iterator[tuple[int, int]]:
    switches = {position: found for position, one in enumerate(body) if (found := _switch(one))}
    for first, frozen in switches.items():
        later = [(at, one) for at, one in switches.items() if at > first and one.is_on]
        if frozen.is_on or any(one.what == frozen.what for _, one in later):
            continue
        for at, one in later:
            is_part = one.what.startswith(f"{frozen.what}.")
            if is_part and any(_uses(statement, frozen.what) for statement in body[first + 1 : at]):
                yield frozen.line, one.line


def _switch(statement: ast.stmt) -> _Switch | None:
    match statement:
        case ast.For(
            target=ast.Name(id=name), iter=ast.Call(func=ast.Attribute(value=whole)) as of
        ):
            inner = next(filter(None, map(_switch, statement.body)), None)
            is_over = ast.unparse(of.func).endswith("parameters")
            if inner is not None and inner.what == name and is_over:
                return _Switch(ast.unparse(whole), inner.is_on, statement.lineno)
        case ast.Assign(
            targets=[ast.Attribute(value=what, attr="requires_grad")],
            value=ast.Constant(value=bool(value)),
        ):
            return _Switch(ast.unparse(what), value, statement.lineno)
        case ast.Expr(value=ast.Call() as call):
            return _switch_of(call)
    return None


def _switch_of(call: ast.Call) -> _Switch | None:
    given = [*call.args, *(one.value for one in call.keywords)]
    values = [one.value for one in given if isinstance(one, ast.Constant)]
    flag = next((one for one in values if isinstance(one, bool)), None)
    match call.func:
        case ast.Attribute(value=what, attr="requires_grad_"):
            return _Switch(ast.unparse(what), flag is not False, call.lineno)
        case ast.Attribute(value=what, attr="freeze" | "unfreeze" as name) if not call.args:
            return _Switch(ast.unparse(what), name == "unfreeze", call.lineno)
        case ast.Name(id=name) | ast.Attribute(attr=name) if call.args:
            whole = ast.unparse(call.args[0])
            if name in ("freeze", "unfreeze"):
                return _Switch(whole, name == "unfreeze", call.lineno)
            if flag is not None and ("grad" in name or "trainable" in name):
                return _Switch(whole, flag, call.lineno)
    return None


def _uses(statement: ast.stmt, whole: str) -> bool:
    """Return whether a statement calls something, or hands it to a call."""
    return _switch(statement) is None and any(
        whole in map(ast.unparse, [call.func, *call.args])
        for call in ast.walk(statement)
        if isinstance(call, ast.Call)
    )
