"""Reads from a file's source where names are bound and which class uses which."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The top level of a file."""

    lines: tuple[tuple[str, int], ...]
    """Names, each with the line of its first binding."""
    uses: tuple[tuple[str, frozenset[str]], ...]
    """For each class and function, the names that it mentions."""

    def line_of(self, name: str) -> int | None:
        """Return the line that binds a name; None if the source does not show it."""
        return next((line for bound, line in self.lines if bound == name), None)

    def reachable(self, name: str) -> frozenset[str]:
        """Return the names that a class or function uses, also through others of the file."""
        uses = dict(self.uses)
        found: set[str] = set()
        waiting = [name]
        while waiting:
            new = uses.get(waiting.pop(), frozenset()) - found
            found |= new
            waiting.extend(new)
        return frozenset(found)


def outline_of(module: ModuleType) -> Outline:
    """Return the outline of a module, empty if it has no source."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):
        return Outline(lines=(), uses=())
    lines: dict[str, int] = {}
    uses = []
    for statement in tree.body:
        for name in _bound(statement):
            lines.setdefault(name, statement.lineno)
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            uses.append((statement.name, _mentioned(statement)))
    return Outline(lines=tuple(lines.items()), uses=tuple(uses))


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]


def _mentioned(statement: ast.stmt) -> frozenset[str]:
    return frozenset(node.id for node in ast.walk(statement) if isinstance(node, ast.Name))
