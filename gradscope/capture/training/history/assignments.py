"""Finds the statement that stores a tensor for the next step, from the source."""

import ast
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType

from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import code_at, tree_of
from gradscope.capture.training.locations import is_installed
from gradscope.frozen import dataclass

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Loop = ast.For | ast.AsyncFor | ast.While
_Scope = ast.Module | _Function

_COLLECTS = frozenset({"add", "append", "appendleft", "extend", "insert", "setdefault", "update"})
"""Methods that add something to a container."""

_DROPS = ("detach", "item", "no_grad", "tolist", "zeros")
"""Parts of names: results of such calls have no history, or are initial values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A statement that assigns something to a variable or an attribute."""

    line: Line
    target: str
    """Target as written: `total_loss`, `self.hidden`."""
    is_repeated: bool
    """Whether it runs in every step, as far as the source shows."""
    is_sum: bool
    """Whether it adds to the previous value."""
    collects: bool
    """Whether it adds something to a container."""
    reads: bool
    """Whether it reads the previous value."""

    @property
    def rank(self) -> tuple[bool, bool]:
        """Sort key of the likelihood: higher is likelier."""
        return self.is_repeated, self.reads


def store_of_variable(name: str, frame: FrameType) -> Store | None:
    """Return the statement by which a step assigned a variable of a running function."""
    code = frame.f_code
    scope = _scope_of(code)
    if scope is None:
        return None
    around = [
        one
        for one in _own(scope)
        if isinstance(one, _Loop) and one.lineno <= frame.f_lineno <= (one.end_lineno or 0)
    ]
    # The innermost loop around the backward is that of the steps.
    repeated = {id(one) for loop in around[-1:] for one in ast.walk(loop)}
    found = [
        _store(one, target, Line(code, one.lineno), is_repeated=id(one) in repeated)
        for one in _own(scope)
        for target in _targets(one, name, is_attribute=False)
    ]
    # Any other name that a function reads is a variable of its module.
    own = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    if name not in own and isinstance(scope, _Function):
        found += _by_module(name, code.co_filename)
    return _likeliest([*found, *_by_functions(name, code.co_filename)])


def store_of_attribute(name: str, kind: type, frames: Iterable[FrameType]) -> Store | None:
    """Return the statement by which a step assigned an attribute.

    Args:
        name: Name of the attribute.
        kind: Class of its owner.
        frames: Running frames of the user's code.
    """
    classes = [one for one in kind.__mro__ if one.__module__ != "builtins"]
    files = dict.fromkeys(_file_of(one) for one in classes)
    own = {one.__name__ for one in classes}
    found = [
        store
        for file in files
        if file and not is_installed(file)
        for store in _in_methods(name, file, own)
    ]
    running = [
        _store(one, target, Line(frame.f_code, one.lineno), is_repeated=True)
        for frame in frames
        if (scope := _scope_of(frame.f_code)) is not None
        for one in _own(scope)
        for target in _targets(one, name, is_attribute=True)
        if not _is_self(target)
    ]
    return _likeliest([*found, *running])


def _by_module(name: str, file: str) -> Iterator[Store]:
    """Yield the assignments of a module itself to one of its variables."""
    module = tree_of(file)
    loops = [one for one in _own(module) if isinstance(one, _Loop)]
    repeated = {id(one) for loop in loops for one in ast.walk(loop)}
    for one in _own(module):
        for target in _targets(one, name, is_attribute=False):
            code = code_at(file, one.lineno)
            if code is not None:
                yield _store(one, target, Line(code, one.lineno), is_repeated=id(one) in repeated)


def _by_functions(name: str, file: str) -> Iterator[Store]:
    """Yield the assignments of functions to a variable that is not local to them."""
    for scope in ast.walk(tree_of(file)):
        if isinstance(scope, _Function) and _is_outer(name, scope):
            yield from _in_function(name, scope, file, is_attribute=False)


def _is_outer(name: str, scope: _Function) -> bool:
    shared = (one for one in _own(scope) if isinstance(one, ast.Global | ast.Nonlocal))
    return any(name in one.names for one in shared)


def _in_methods(name: str, file: str, classes: set[str]) -> Iterator[Store]:
    for owner in ast.walk(tree_of(file)):
        if isinstance(owner, ast.ClassDef) and owner.name in classes:
            for scope in ast.walk(owner):
                # `__init__` gives the first value, which no step has made.
                if isinstance(scope, _Function) and scope.name != "__init__":
                    yield from _in_function(name, scope, file, is_attribute=True)


def _in_function(name: str, scope: _Function, file: str, *, is_attribute: bool) -> Iterator[Store]:
    for one in _own(scope):
        for target in _targets(one, name, is_attribute=is_attribute):
            code = code_at(file, one.lineno)
            if code is not None and (not is_attribute or _is_self(target)):
                yield _store(one, target, Line(code, one.lineno), is_repeated=True)


def _likeliest(found: list[Store]) -> Store | None:
    return max(found, key=lambda store: store.rank, default=None)


def _store(statement: ast.stmt, target: ast.expr, line: Line, *, is_repeated: bool) -> Store:
    value = getattr(statement, "value", None)
    name = ast.unparse(target)
    reads = isinstance(value, ast.expr) and any(
        isinstance(one, ast.Name | ast.Attribute)
        and isinstance(one.ctx, ast.Load)
        and ast.unparse(one) == name
        for one in ast.walk(value)
    )
    is_call = isinstance(statement, ast.Expr)
    is_sum = isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add)
    is_added = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and reads
    return Store(
        line=line,
        target=name,
        is_repeated=is_repeated,
        is_sum=is_sum or is_added,
        collects=is_call or _is_list(value),
        reads=reads or is_call or isinstance(statement, ast.AugAssign),
    )


def _is_list(value: object) -> bool:
    return isinstance(value, ast.List | ast.ListComp | ast.Dict | ast.DictComp)


def _targets(statement: ast.stmt, name: str, *, is_attribute: bool) -> Iterator[ast.expr]:
    """Yield the targets of this name to which a statement assigns something with a history."""
    match statement:
        case ast.Assign(targets=targets, value=value) if _may_carry(value):
            locations = [one for target in targets for one in _parts(target)]
        case ast.AnnAssign(target=target, value=ast.expr() as value) if _may_carry(value):
            locations = [target]
        case ast.AugAssign(target=target, value=value) if _may_carry(value):
            locations = [target]
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr=method), args=[*given])):
            puts = method in _COLLECTS or (method.endswith("_") and not _drops(method))
            locations = [owner] if puts and all(map(_may_carry, given)) else []
        case _:
            return
    for location in map(_whole, locations):
        is_it = location.attr == name if isinstance(location, ast.Attribute) else False
        if is_it if is_attribute else isinstance(location, ast.Name) and location.id == name:
            yield location


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _parts(part)
        case ast.Starred(value=part):
            yield from _parts(part)
        case _:
            yield target


def _whole(target: ast.expr) -> ast.expr:
    """Return the object of a subscript."""
    while isinstance(target, ast.Subscript):
        target = target.value
    return target


def _may_carry(value: ast.expr) -> bool:
    names = [n for one in ast.walk(value) if (n := getattr(one, "attr", getattr(one, "id", None)))]
    return bool(names) and not any(map(_drops, names))


def _drops(name: str) -> bool:
    return any(word in name for word in _DROPS)


def _is_self(location: ast.expr) -> bool:
    return isinstance(location, ast.Attribute) and getattr(location.value, "id", "") == "self"


def _own(scope: _Scope) -> Iterator[ast.stmt]:
    """Yield the statements of a function or a module, except those of nested functions and classes.

    They come in source order.
    """
    waiting: list[ast.AST] = list(reversed(scope.body))
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.stmt):
            yield one
        if not isinstance(one, _Function | ast.ClassDef | ast.expr):
            waiting += reversed(list(ast.iter_child_nodes(one)))


def _scope_of(code: CodeType) -> _Scope | None:
    tree = tree_of(code.co_filename)
    if code.co_name == "<module>":
        return tree
    for one in ast.walk(tree):
        if isinstance(one, _Function) and one.name == code.co_name:
            # The first line of code is that of the first decorator, the node's is that of `def`.
            first = min([one.lineno, *(item.lineno for item in one.decorator_list)])
            if first == code.co_firstlineno:
                return one
    return None


def _file_of(kind: type) -> str | None:
    """Return the file of a class, from its methods: the class itself does not store it."""
    codes = (getattr(one, "__code__", None) for one in vars(kind).values())
    return next((code.co_filename for code in codes if isinstance(code, CodeType)), None)
