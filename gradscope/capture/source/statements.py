"""Reads, parses and searches the source code, around lines and for definitions."""

import ast
import functools
import inspect
import linecache
import sys
import sysconfig
import textwrap
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from weakref import WeakKeyDictionary, ref

from torch.autograd import Function
from torch.autograd.function import BackwardCFunction

from gradscope.capture.naming import NamedModel
from gradscope.capture.source.definitions import Definitions, Registration
from gradscope.capture.source.lines import INSTALLED, Line, lines_of
from gradscope.recording.evidence.training import SourceRecord, StatementRecord
from gradscope.recording.records import Site

_FILLING = frozenset(
    {"append", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}
)
"""Methods of lists and dictionaries that change what they hold."""


def parsed(source: str) -> ast.Module | None:
    """Return the tree of a source, None if it cannot be parsed, like some notebook cells."""
    try:
        with _unwarned():
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None


def compiled(source: str, file: str) -> CodeType | None:
    """Return the code of a source, None if it cannot be compiled."""
    try:
        with _unwarned():
            # Without `dont_inherit`, the `__future__` imports of this file would apply to the
            # script.
            return compile(source, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return None


@contextmanager
def _unwarned() -> Iterator[None]:
    """Suppress warnings: Python showed them when it compiled the source.

    `warnings.catch_warnings` would make Python forget which warnings of the script it has shown.
    """
    shown = warnings._showwarnmsg  # type: ignore[attr-defined]
    warnings._showwarnmsg = lambda message: None  # type: ignore[attr-defined]
    try:
        yield
    finally:
        warnings._showwarnmsg = shown  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=16)
def tree_of(file: str) -> ast.Module:
    """Return the tree of a file, empty if it cannot be read."""
    return parsed("".join(linecache.getlines(file))) or ast.Module(body=[], type_ignores=[])


@functools.lru_cache(maxsize=64)
def code_at(file: str, line: int) -> CodeType | None:
    """Return the innermost code object of a line, compiled from the unchanged source."""
    code = compiled("".join(linecache.getlines(file)), file)
    if code is None:
        return None
    waiting, found = [code], None
    while waiting:
        one = waiting.pop()
        if any(number == line for *_, number in one.co_lines()):
            found = one
        waiting += [inner for inner in one.co_consts if isinstance(inner, CodeType)]
    return found


CONTEXT = 2
"""Number of lines kept before and after each line."""


def sources_around(sites: Iterable[Site]) -> Iterator[SourceRecord]:
    """Yield the lines around the sites, in windows that do not touch; none for unreadable files."""
    by_file: dict[str, set[int]] = {}
    for site in sites:
        window = range(site.line - CONTEXT, site.line + CONTEXT + 1)
        by_file.setdefault(site.file, set()).update(window)
    for file, numbers in by_file.items():
        lines = lines_of(file)
        known = sorted(number for number in numbers if 1 <= number <= len(lines))
        for first, last in _runs(known):
            texts = tuple(line.rstrip() for line in lines[first - 1 : last])
            yield SourceRecord(file=file, first=first, lines=texts)


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last of each run of consecutive numbers; the numbers are ascending."""
    present = set(numbers)
    starts = (number for number in numbers if number - 1 not in present)
    ends = (number for number in numbers if number + 1 not in present)
    return zip(starts, ends, strict=True)


_LONGEST = 1_000
"""Maximum length in characters. Longer ones are lists and calls with independent lines."""


def statements_around(sites: Iterable[Site]) -> Iterator[StatementRecord]:
    """Yield each statement of several lines that contains a site of the user's own code."""
    by_file: dict[str, set[int]] = {}
    for site in sites:
        if not site.is_installed:
            by_file.setdefault(site.file, set()).add(site.line)
    for file, numbers in by_file.items():
        lines = lines_of(file)
        for first, last in sorted(_extents("".join(lines))):
            text = "".join(lines[first - 1 : last])
            if len(text) <= _LONGEST and any(first <= number <= last for number in numbers):
                yield StatementRecord(file=file, first=first, last=last, text=text)


@functools.lru_cache(maxsize=16)  # tests inspect many models in one file
def _extents(source: str) -> frozenset[tuple[int, int]]:
    """Return first and last line of every statement that spans several lines."""
    tree = parsed(source)
    if tree is None:
        return frozenset()  # for example, a notebook's cell with magics
    extents = {(one.lineno, _last_line(one)) for one in _statements(tree)}
    return frozenset((first, last) for first, last in extents if last > first)


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield all statements, without a walk through their expressions, which are many more."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            below = getattr(node, name, ())
            if isinstance(below, list):  # `body` and `orelse` of expressions are no statements
                waiting += below


def _last_line(statement: ast.stmt) -> int:
    """Return the last line of a statement, or of the header of a compound statement."""
    if isinstance(statement, ast.Match):
        # Its cases have no line numbers in the tree.
        return statement.lineno
    body: list[ast.stmt] = getattr(statement, "body", [])
    if body:
        return max(statement.lineno, body[0].lineno - 1)
    return statement.end_lineno or statement.lineno


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


def is_only_made_at_construction(kind: type, attribute: str) -> bool:
    """Return whether `__init__`, and no other method that can be read, assigns an attribute."""
    makers = {
        method.__name__
        for base in kind.__mro__
        for method in vars(base).values()
        if isinstance(method, FunctionType)
        and any(name == attribute for name, _ in _known_assignments(method))
    }
    return makers == {"__init__"}


@functools.lru_cache(maxsize=64)
def is_only_filled_at_construction(file: str, attribute: str) -> bool:
    """Return whether a container is only filled in a file where `__init__` does it."""
    inside = {
        id(node)
        for function in ast.walk(tree_of(file))
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
        for node in ast.walk(function)
    }
    return not any(
        id(node) not in inside and attribute in _filled(node) for node in ast.walk(tree_of(file))
    )


def _filled(node: ast.AST) -> Iterator[str]:
    """Yield the attributes whose items a statement sets or deletes, or may change by a call."""
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        yield from _attributes(node.value)
    elif isinstance(node, ast.AugAssign):
        yield from _attributes(node.target)
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _FILLING
    ):
        yield from _attributes(node.func.value)


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
    code = _code_of_backward(function)
    if code is None:
        return None
    returns = _returns(code)
    return Line(code, returns[-1][0] if returns else code.co_firstlineno)


def line_of_returned(function: type[Function], position: int) -> Line | None:
    """Return the line that decides whether a function's backward returns a gradient for an input.

    That is the innermost `if` around the only assignment of what it returns, or its return.

    Args:
        function: The custom function.
        position: Index of the input.
    """
    code = _code_of_backward(function)
    returns = [] if code is None else _returns(code)
    if code is None or not returns:
        return backward_code(function)
    line, node, body, first = returns[-1]
    values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    value = values[position] if position < len(values) else None
    if isinstance(value, ast.IfExp):
        return Line(code, first + value.lineno)
    if isinstance(value, ast.Name):
        guards = [
            around.lineno
            for around in _own_nodes(body)
            if isinstance(around, ast.If) and _assigns(around.body, value.id)
        ]
        line = first + max(guards) if guards else line
    return Line(code, line)


def _assigns(statements: Iterable[ast.stmt], name: str) -> bool:
    """Return whether some statements assign a name."""
    return any(
        isinstance(target, ast.Name) and target.id == name
        for statement in statements
        for node in (statement, *_own_nodes(statement))
        if isinstance(node, ast.Assign)
        for target in node.targets
    )


def _code_of_backward(function: type[Function]) -> CodeType | None:
    # torch accepts either name for the backward of a custom function.
    own = function.backward if function.backward is not Function.backward else function.vjp
    # `once_differentiable` wraps it.
    return getattr(inspect.unwrap(own), "__code__", None)


def _returns(code: CodeType) -> list[tuple[int, ast.Return, ast.AST, int]]:
    """Return a function's returns: line, statement, body, and the line before the source's first.

    Nothing for code that was typed in or generated.
    """
    try:
        lines, first = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError):
        return []
    body = tree.body[0]
    found = [node for node in _own_nodes(body) if isinstance(node, ast.Return)]
    return sorted(
        ((first + node.lineno - 1, node, body, first - 1) for node in found),
        key=lambda one: one[0],
    )


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
    return file is not None and (
        file.startswith(_INSTALLED) or any(part in file for part in INSTALLED)
    )


def nodes_within(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope, without those of functions inside."""
    # Reversed, because the last one is taken first: nodes come in the order of the source.
    waiting = list(ast.iter_child_nodes(scope))[::-1]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += list(ast.iter_child_nodes(node))[::-1]
