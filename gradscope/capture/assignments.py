"""Finds the line of a class that assigns an attribute."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import FunctionType

from gradscope.capture.lines import Line


def assignment(kind: type, attribute: str) -> Line | None:
    """Return the first line of a class, or of one it derives from, that assigns `self.attribute`.

    `__init__` comes before other methods. None where the source cannot be read or none does.
    """
    for base in kind.__mro__:
        methods = [value for value in vars(base).values() if isinstance(value, FunctionType)]
        methods.sort(key=lambda method: method.__name__ != "__init__")
        for method in methods:
            line = next(_assignments(method, attribute), None)
            if line is not None:
                return line
    return None


def _assignments(method: FunctionType, attribute: str) -> Iterator[Line]:
    if attribute not in method.__code__.co_names:
        return
    try:
        lines, first = inspect.getsourcelines(method)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_is_attribute(target, attribute) for target in targets):
                yield Line(method.__code__, first + node.lineno - 1)


def _is_attribute(target: ast.expr, attribute: str) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return any(_is_attribute(item, attribute) for item in target.elts)
    return isinstance(target, ast.Attribute) and target.attr == attribute
