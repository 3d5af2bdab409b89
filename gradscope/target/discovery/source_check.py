"""Checks a target's file from its source, before torch is imported or the file runs."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.target.discovery.importing import check_module, find_file
from gradscope.target.notation import TargetSpec
from gradscope.target.user_code import did_you_mean

_PROTOCOL = frozenset({"gradscope_setup", "build_model", "build_batch", "compute_loss"})
"""Functions that mark a file as written for gradscope."""

_DYNAMIC = frozenset({"exec", "eval", "globals", "vars", "setattr", "__getattr__"})
"""Names of a file that may bind further names when it runs."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Functions = Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef]


def check_source(spec: TargetSpec) -> None:
    """Check that a target's file exists, has the named object, and does not train when imported.

    What the source does not show is left to the import.

    Raises:
        GradscopeError: There is no such file or name, or the file trains when it is imported.
    """
    path = find_file(spec.location)
    if path is None:
        check_module(spec.location)
    tree = None if path is None else _parsed(path)
    if path is None or tree is None:
        return
    if spec.expression is not None:
        _check_name(tree, spec.expression.names[0], spec.location)
    _check_training(tree, spec.location)


def line_of_training(location: str) -> int | None:
    """Return the line of the first backward of a file that trains when it runs as a script."""
    path = find_file(location)
    tree = None if path is None else _parsed(path)
    if tree is None or not any(map(_is_main_guard, tree.body)):
        return None
    calls = list(_calls(tree))
    lines = [call.lineno for call in _trainer_calls(tree)]
    if any(_method(call) == "step" for call in calls):
        lines += [call.lineno for call in calls if _method(call) == "backward"]
    return min(lines, default=None)


def _parsed(path: Path) -> ast.Module | None:
    try:
        # Bytes, because the file may declare another encoding than UTF-8.
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def _check_name(tree: ast.Module, name: str, location: str) -> None:
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    bound = set(_bound(tree))
    # A star import or `exec` may bind any name: only the import can tell.
    if "*" in bound or names & _DYNAMIC or bound & _DYNAMIC or name in bound:
        return
    if name in {"__name__", "__file__", "__doc__"}:
        return
    public = (other for other in bound if not other.startswith("_"))
    raise GradscopeError(f"{location!r} has no {name!r}", help=did_you_mean(name, public))


def _bound(tree: ast.Module) -> Iterator[str]:
    """Yield every name that the file binds, in functions too: they may be global."""
    for node in ast.walk(tree):
        if isinstance(node, _Function | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest


def _check_training(tree: ast.Module, location: str) -> None:
    functions = {node.name: node for node in tree.body if isinstance(node, _Function)}
    # A file written for gradscope may train in its functions, and is imported for them.
    if _PROTOCOL & functions.keys():
        return
    search = _Search(functions=functions, trainer_calls=_trainer_calls(tree))
    found = next(search.training_calls(tree.body), None)
    if found is None:
        return
    raise GradscopeError(
        f"{location!r} trains when it is imported (line {found.lineno}: {ast.unparse(found)})",
        help=f'gradscope run {location}, or put the training under  if __name__ == "__main__":',
    )


def _trainer_calls(tree: ast.Module) -> frozenset[ast.Call]:
    """Return the calls that start the loop of a trainer, as `trainer.fit(net)`.

    A trainer is what a class whose name ends so makes, as of transformers, TRL and Lightning.
    """
    made = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _makes_trainer(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return frozenset(
        call
        for call in _calls(tree)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in ("train", "fit")
        and (
            _makes_trainer(call.func.value)
            or (isinstance(call.func.value, ast.Name) and call.func.value.id in made)
        )
    )


def _makes_trainer(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and (_name(node) or _method(node)).endswith("Trainer")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """What a file defines that may train."""

    functions: _Functions
    trainer_calls: frozenset[ast.Call]

    def training_calls(self, statements: list[ast.stmt]) -> Iterator[ast.Call]:
        """Yield the calls that train when these statements of a module run.

        A loop trains if it calls `backward()` and `step()`, itself or through a function of the
        file.
        """
        for statement in statements:
            # What these contain does not run on import.
            if isinstance(statement, _Function | ast.ClassDef) or _is_main_guard(statement):
                continue
            if isinstance(statement, ast.For | ast.While | ast.AsyncFor):
                yield from self._of_loop(list(_calls(statement)))
            elif isinstance(statement, ast.If | ast.With | ast.Try):
                yield from self.training_calls(list(_inner(statement)))
            else:
                yield from filter(self._starts_training, _calls(statement))

    def _of_loop(self, calls: list[ast.Call]) -> Iterator[ast.Call]:
        if _trains(calls, self.functions):
            yield next(
                call
                for call in calls
                if _method(call) == "backward" or "backward" in _methods([call], self.functions)
            )
        yield from filter(self._starts_training, calls)

    def _starts_training(self, call: ast.Call) -> bool:
        inner = self.functions.get(_name(call))
        if inner is None:
            return call in self.trainer_calls
        return _loops_and_trains(inner, self.functions) or any(
            own in self.trainer_calls for own in _calls(inner)
        )


def _inner(statement: ast.If | ast.With | ast.Try) -> Iterator[ast.stmt]:
    for field in ("body", "orelse", "finalbody"):
        yield from getattr(statement, field, ())


def _is_main_guard(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.If):
        return False
    return any(
        isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test)
    )


def _loops_and_trains(
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    functions: _Functions,
) -> bool:
    loops = (node for node in ast.walk(function) if isinstance(node, ast.For | ast.While))
    return any(_trains(list(_calls(loop)), functions) for loop in loops)


def _trains(
    calls: list[ast.Call],
    functions: _Functions,
    seen: frozenset[str] = frozenset(),
) -> bool:
    """Return whether calls make a backward and a step, also within functions of the file."""
    methods = set(_methods(calls, functions, seen))
    return "backward" in methods and "step" in methods


def _methods(
    calls: list[ast.Call],
    functions: _Functions,
    seen: frozenset[str] = frozenset(),
) -> Iterator[str]:
    for call in calls:
        yield _method(call)
        name = _name(call)
        # `seen`, because functions may call each other in a circle.
        if name in functions and name not in seen:
            yield from _methods(list(_calls(functions[name])), functions, seen | {name})


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""
