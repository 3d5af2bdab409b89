"""Finds the lines that assign attributes, make modules and write backward functions."""

import ast
import inspect
import sys
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from weakref import WeakKeyDictionary, ref

from torch.autograd import Function
from torch.autograd.function import BackwardCFunction

from gradscope.capture.naming import NamedModel
from gradscope.capture.source.definitions import Definitions, Registration
from gradscope.capture.source.lines import Line

_REGISTERING = frozenset({"register_buffer", "register_module", "register_parameter"})

_KNOWN: WeakKeyDictionary[FunctionType, tuple[tuple[str, Line], ...]] = WeakKeyDictionary()
"""Assignments by method: those of `nn.Module`, the base of every model, take long to read."""


def assignments(kind: type) -> dict[str, Line]:
    """Return the first line of a class, or of its bases, that assigns each attribute.

    `__init__` comes before other methods. Unreadable classes are skipped.
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
    """Yield the attributes that a statement assigns, or a call such as `register_buffer`."""
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


def function_of(node: object) -> type[Function] | None:
    """Return the class whose `backward` a node runs, None for torch's own operations."""
    if not isinstance(node, BackwardCFunction):
        return None
    function = getattr(type(node), "_forward_cls", None)
    return function if isinstance(function, type) and issubclass(function, Function) else None


def backward_code(function: type[Function]) -> Line | None:
    """Return the line at which a function's backward returns, or the line that defines it."""
    own = function.backward if function.backward is not Function.backward else function.vjp
    code = getattr(inspect.unwrap(own), "__code__", None)
    if code is None:
        return None
    try:
        lines, first = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError):  # code typed in, or generated
        return Line(code, code.co_firstlineno)
    returns = [node.lineno for node in _own_nodes(tree.body[0]) if isinstance(node, ast.Return)]
    return Line(code, first + max(returns) - 1 if returns else code.co_firstlineno)


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes inside a function, except those in nested functions."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            yield from _own_nodes(node)


_INSTALLED = tuple(str(Path(sysconfig.get_path(name))) for name in ("stdlib", "purelib", "platlib"))


def written_definitions(named: NamedModel) -> Definitions:
    """Return the lines of the user's classes that assign the parts of a model.

    For parts in a container, it is the line that assigns the container.
    """
    found = Definitions()
    by_class: dict[type, dict[str, Line]] = {}
    for module, record in zip(named.modules, named.module_records, strict=True):
        if record.parent is not None:
            parent = named.modules[record.parent]
            attribute = record.path.rpartition(".")[2]
            line = _lines(type(parent), by_class).get(attribute, found.modules.get(parent))
            if line is not None:
                found.modules[module] = line
    for parameter, parameter_record in zip(named.parameters, named.parameter_records, strict=True):
        owner = named.modules[parameter_record.module]
        attribute = parameter_record.name.rpartition(".")[2]
        line = _lines(type(owner), by_class).get(attribute, found.modules.get(owner))
        if line is not None:
            found.parameters[parameter] = Registration(ref(owner), attribute, line, 0)
    return found


def _lines(kind: type, known: dict[type, dict[str, Line]]) -> dict[str, Line]:
    if kind not in known:
        known[kind] = {} if _is_installed(kind) else assignments(kind)
    return known[kind]


def _is_installed(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is not None and file.startswith(_INSTALLED)
