"""Finds tensors that a module draws at random when it is made, in the source of its class."""

import ast
import functools
import re
import sys
from collections.abc import Iterator

from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import code_at, nodes_within, tree_of

_DRAWING = re.compile(
    r"^(rand\w*|(log_)?normal_?|(standard_)?normal|uniform_?|bernoulli_?|exponential_|cauchy_"
    r"|geometric_|multinomial|(kaiming|xavier)_\w+|orthogonal_|trunc_normal_|sparse_)$"
)
"""Functions and methods of torch and NumPy that draw random numbers."""


def drawn_at(kind: type, name: str) -> Line | None:
    """Return the line at which a class sets an attribute or a buffer to random numbers."""
    for base in kind.__mro__:
        module = base.__module__
        if module == "torch" or module.startswith("torch."):
            continue
        file = getattr(sys.modules.get(module), "__file__", None)
        number = None if file is None else _draws(file).get((base.__name__, name))
        code = None if file is None or number is None else code_at(file, number)
        if code is not None and number is not None:
            return Line(code, number)
    return None


@functools.lru_cache(maxsize=16)
def _draws(file: str) -> dict[tuple[str, str], int]:
    """Return the lines that set random attributes, by class and attribute."""
    return {
        (kind.name, name): number
        for kind in ast.walk(tree_of(file))
        if isinstance(kind, ast.ClassDef)
        for method in kind.body
        if isinstance(method, ast.FunctionDef)
        for name, number in _of_method(method)
    }


def _of_method(method: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    nodes = list(nodes_within(method))
    random: set[str] = set()
    for node in nodes * 2:  # once more for the variables made of others
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_random(value, random):
                random.add(name)
            case ast.Expr(value=ast.Call(args=[ast.Name(id=name), *_]) as call) if _draws_by(call):
                random.add(name)  # nn.init.orthogonal_(name)
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)]):
                value = node.value
            case ast.Call(
                func=ast.Attribute(attr="register_buffer"),
                args=[ast.Constant(value=str(name)), value, *_],
            ):
                pass
            case _:
                continue
        if _is_random(value, random):
            yield name, node.lineno


def _is_random(value: ast.expr, random: set[str]) -> bool:
    """Return whether a value holds random numbers, or is made of some."""
    return any(
        _draws_by(one)
        if isinstance(one, ast.Call)
        else isinstance(one, ast.Name) and one.id in random
        for one in ast.walk(value)
    )


def _draws_by(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return _DRAWING.match(name) is not None
    return False
