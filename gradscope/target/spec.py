"""Parses `TARGET` and `EXPR` of the command line, without running anything."""

import ast
from dataclasses import dataclass
from pathlib import Path

from gradscope.errors import GradscopeError
from gradscope.target.files import exists


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The literal arguments of a call."""

    positional: tuple[object, ...]
    keywords: tuple[tuple[str, object], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A dotted name, or a call of one with literal arguments."""

    text: str
    names: tuple[str, ...]
    call: Arguments | None
    """None for a name without a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """The location of the target, and the object in it."""

    text: str
    location: str
    """A path or a dotted module name."""
    expression: Expression | None


def parse_target(text: str) -> TargetSpec:
    """Split `TARGET` into location and EXPR.

    The separator is the last colon with more than one character before it (a Windows drive has one)
    and an EXPR after it. A path that exists is never split.

    Raises:
        GradscopeError: The text after the separator is no EXPR.
    """
    if exists(Path(text)):
        return TargetSpec(text=text, location=text, expression=None)
    separators = [
        position for position, letter in enumerate(text) if letter == ":" and position > 1
    ]
    for position in reversed(separators):
        expression = _parse_or_none(text[position + 1 :])
        if expression is not None:
            return TargetSpec(text=text, location=text[:position], expression=expression)
    for position in reversed(separators):
        if not set("/\\") & set(text[position + 1 :].partition("(")[0]):
            parse_expression(text[position + 1 :])
    return TargetSpec(text=text, location=text, expression=None)


def parse_expression(text: str) -> Expression:
    """Parse EXPR; only literals are evaluated.

    Raises:
        GradscopeError: It is neither a dotted name nor a call with literal arguments.
    """
    expression = _parse_or_none(text)
    if expression is None:
        raise GradscopeError(
            f"cannot read {text!r} as the name of a model, batch or loss",
            cause="expected a name, or a call whose arguments are Python literals",
            help="write it as  Net  or  build_model(hidden=64)",
        )
    return expression


def _parse_or_none(text: str) -> Expression | None:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        call = _arguments(tree) if isinstance(tree, ast.Call) else None
        names = _dotted(tree.func if isinstance(tree, ast.Call) else tree)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        # Exceptions that ast.parse and ast.literal_eval document for malformed text.
        return None
    return Expression(text=text.strip(), names=names, call=call)


def _arguments(call: ast.Call) -> Arguments:
    keywords = []
    for keyword in call.keywords:
        if keyword.arg is None:
            raise ValueError("** is not a literal argument")
        keywords.append((keyword.arg, ast.literal_eval(keyword.value)))
    positional = tuple(ast.literal_eval(argument) for argument in call.args)
    return Arguments(positional=positional, keywords=tuple(keywords))


def _dotted(tree: ast.expr) -> tuple[str, ...]:
    match tree:
        case ast.Name(id=name):
            return (name,)
        case ast.Attribute(value=value, attr=name):
            return (*_dotted(value), name)
        case _:
            raise ValueError("not a dotted name")
