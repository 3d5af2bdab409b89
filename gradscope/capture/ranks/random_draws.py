"""Finds tensors that a module draws at random when it is made, in the source of its class."""

import ast
import functools
import re
import sys
from collections.abc import Iterator, Mapping

from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import code_at, nodes_within, tree_of
from gradscope.frozen import dataclass

_DRAWING = re.compile(
    r"^(rand\w*|(log_)?normal_?|(standard_)?normal|uniform_?|bernoulli_?|exponential_|cauchy_"
    r"|geometric_|multinomial|(kaiming|xavier)_\w+|orthogonal_|trunc_normal_|sparse_)$"
)
"""Functions and methods of torch and NumPy that draw random numbers."""


def drawn_at(kind: type, name: str) -> Line | None:
    """Return the line at which a class sets an attribute or a buffer to random numbers.

    None if the forward does not read it: a module may hold data of its rank.
    """
    found: Line | None = None
    is_read = False
    for base in kind.__mro__:
        module = base.__module__
        if module == "torch" or module.startswith("torch."):
            continue
        file = getattr(sys.modules.get(module), "__file__", None)
        known = _classes(file).get(base.__name__) if file is not None else None
        if file is None or known is None:
            continue
        # A class may draw what the forward of its base reads.
        is_read = is_read or name in known.read
        number = known.drawn.get(name)
        code = None if number is None or found is not None else code_at(file, number)
        if code is not None and number is not None:
            found = Line(code, number)
    return found if is_read else None


@dataclass(frozen=True, slots=True)
class _Class:
    """What the source of a class does with its attributes."""

    drawn: Mapping[str, int]
    """Lines that set attributes to random numbers, by attribute."""
    read: frozenset[str]
    """Attributes that `forward`, or a method that it calls, reads."""


@functools.lru_cache(maxsize=16)
def _classes(file: str) -> dict[str, _Class]:
    """Return the classes of a file, by name."""
    return {
        kind.name: _class(kind)
        for kind in ast.walk(tree_of(file))
        if isinstance(kind, ast.ClassDef)
    }


def _class(kind: ast.ClassDef) -> _Class:
    methods = {one.name: one for one in kind.body if isinstance(one, ast.FunctionDef)}
    drawn = {name: line for one in methods.values() for name, line in _of_method(one)}
    read: set[str] = set()
    waiting = ["forward"]
    while waiting:
        # Taken out, because methods may call each other in a circle.
        method = methods.pop(waiting.pop(), None)
        if method is not None:
            names = set(_own_attributes(method))
            read |= names
            waiting += sorted(names)
    return _Class(drawn, frozenset(read))


def _own_attributes(method: ast.FunctionDef) -> Iterator[str]:
    """Yield the attributes of `self` that a method reads."""
    for node in ast.walk(method):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Load()):
                yield name


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
