"""Finds the lines of a class that assign attributes."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import FunctionType
from weakref import WeakKeyDictionary

from gradscope.capture.lines import Line

_REGISTERING = frozenset({"register_buffer", "register_module", "register_parameter"})

_KNOWN: WeakKeyDictionary[FunctionType, tuple[tuple[str, Line], ...]] = WeakKeyDictionary()
"""What methods assign: those of `nn.Module`, from which every model derives, take long to read."""


def assignments(kind: type) -> dict[str, Line]:
    """Return the first line of a class, or of one it derives from, that assigns each attribute.

    `__init__` comes before other methods; what cannot be read is left out.
    """
    found: dict[str, Line] = {}
    for base in kind.__mro__:
        methods = [value for value in vars(base).values() if isinstance(value, FunctionType)]
        methods.sort(key=lambda method: method.__name__ != "__init__")
        for method in methods:
            for attribute, line in _known_assignments(method):
                found.setdefault(attribute, line)
    return found


def _known_assignments(method: FunctionType) -> tuple[tuple[str, Line], ...]:
    if method not in _KNOWN:
        _KNOWN[method] = tuple(_assignments(method))
    return _KNOWN[method]


def _assignments(method: FunctionType) -> Iterator[tuple[str, Line]]:
    try:
        lines, first = inspect.getsourcelines(method)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError):
        return
    for node in ast.walk(tree):
        for attribute in _assigned(node):
            yield attribute, Line(method.__code__, first + getattr(node, "lineno", 1) - 1)


def _assigned(node: ast.AST) -> Iterator[str]:
    """Yield the attributes that a statement or a call such as `register_buffer` gives."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from _attributes(target)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.args[0] if node.args else None
        if node.func.attr in _REGISTERING and isinstance(name, ast.Constant):
            yield str(name.value)


def _attributes(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Tuple | ast.List):
        for item in target.elts:
            yield from _attributes(item)
    elif isinstance(target, ast.Attribute):
        yield target.attr
