"""Searches the user's source for the line that caused a state of the model."""

import ast
import inspect
import linecache
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import NamedTuple

import torch
from torch import nn

from gradscope.capture.source.gradient_writes import MisplacedWrite, misplaced_writes
from gradscope.capture.source.lines import Line
from gradscope.probes.context import ProbeContext
from gradscope.recording.evidence.parameters import OverwrittenRecord
from gradscope.recording.evidence.training import MisplacedWriteRecord

_INSTALLED = ("site-packages", "dist-packages", str(Path(torch.__file__).parent))
_PACKAGE = str(Path(__file__).parents[1])


class UserCodeSearch:
    """The files of the model and its parts, without installed libraries."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._trees = {file: tree for file in _files(context) if (tree := _tree(file)) is not None}

    def assignments(self, attribute: str) -> tuple[int, ...]:
        """Return the lines (sites) that set an attribute of that name, in order."""
        found = []
        for file, tree in self._trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.expr) and _sets(node, attribute):
                    found.append(self._site(file, node.lineno))  # noqa: PERF401 - reads better
        return tuple(dict.fromkeys(site for site in found if site is not None))

    def line_that_copies(self, names: list[str], *, shares: bool) -> int | None:
        """Return the only line (a site) that gives one of two parameters the elements of the other.

        Args:
            names: Fully qualified names of the two.
            shares: Whether they share memory, instead of having equal values.
        """
        given = [
            (target, self._site(file, node.lineno))
            for file, tree in self._trees.items()
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign | ast.Call)
            and (target := _given_elements(node, shares=shares)) is not None
        ]
        # From the certain to the likely: the first kind that finds lines decides.
        named = [site for target, site in given if any(_is(target, name) for name in names)]
        likely = [site for target, site in given if any(_may_be(target, name) for name in names)]
        in_loops = [site for target, site in given if shares and target.isidentifier()]
        return _single(named or likely or in_loops)

    def overwritten(self) -> Iterator[OverwrittenRecord]:
        """Yield the assignments whose values nothing reads before the next to the same name."""
        for file, tree in self._trees.items():
            for first, second in _dead_stores_of(tree):
                site = self._site(file, second.lineno)
                if site is not None:
                    yield OverwrittenRecord(
                        name=_target(first) or "",
                        file=file,
                        first=first.lineno,
                        last=first.end_lineno or first.lineno,
                        site=site,
                    )

    def misplaced_writes(self) -> Iterator[MisplacedWriteRecord]:
        """Yield the statements of training loops that write gradients in vain."""
        for file, tree in self._trees.items():
            for one in _misplaced_writes_of(tree):
                site, backward = self._site(file, one.line), self._site(file, one.backward)
                if site is not None and backward is not None:
                    yield MisplacedWriteRecord(site=site, backward=backward, way=one.way)

    def reads_nowhere(self, owner: type[nn.Module], attribute: str) -> bool:
        """Return whether a class assigns an attribute that no code of the user's reads.

        It is unknown, and False, for a class with a base in an installed library.
        """
        # Up to `nn.Module`, which reads no attribute of a subclass by name.
        bases = owner.__mro__[: owner.__mro__.index(nn.Module)]
        files = [file for base in bases for file in _file_of(base)]
        if len(files) < len(bases) or not all(map(_is_of_user, files)):
            return False
        trees = [tree for file in files if (tree := _tree(file)) is not None]
        names = {base.__name__ for base in bases}
        uses = [
            use for tree in (*self._trees.values(), *trees) for use in _mentions_of(tree, attribute)
        ]
        return any(_is_assigned(use.node) and use.owner in names for use in uses) and not any(
            _is_read(use, names) for use in uses
        )

    def line_that_fills(self) -> int | None:
        """Return the only line (a site) that fills a tensor other than a bias with a constant."""
        found = [
            self._site(file, node.lineno)
            for file, tree in self._trees.items()
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and _fills(node)
        ]
        return _single(found)

    def _site(self, file: str, number: int) -> int | None:
        code = _code(file)
        return None if code is None else self._context.assembler.site_of(_line(code, number))


def _files(context: ProbeContext) -> Iterator[str]:
    definitions = context.definitions
    lines = [*definitions.modules.values(), *context.capture.sites.lines]
    lines += [made.line for made in definitions.optimizers.values()]
    files = [line.code.co_filename for line in lines if line is not None]
    for kind in {type(module) for module in context.named.modules}:
        files += _file_of(kind)
    # The loop may be in a file that makes no module. By the attribute, because `inspect` shows a
    # main module without a file in its error, and that `repr` warns.
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    files += [main] if isinstance(main, str) else []
    for file in dict.fromkeys(files):
        if _is_of_user(file):
            yield file


def _is_of_user(file: str) -> bool:
    return not file.startswith(_PACKAGE) and not any(part in file for part in _INSTALLED)


def _file_of(kind: type) -> list[str]:
    try:
        file = inspect.getsourcefile(kind)
    except (TypeError, OSError):
        return []
    return [] if file is None else [file]


def _tree(file: str) -> ast.Module | None:
    return _parsed("".join(linecache.getlines(file)))


@lru_cache(maxsize=16)  # each captured step of a run searches the same files
def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


def _code(file: str) -> CodeType | None:
    return _compiled("".join(linecache.getlines(file)), file)


@lru_cache(maxsize=16)
def _compiled(source: str, file: str) -> CodeType | None:
    try:
        # Never run: lines refer to code objects, which no running function need have.
        return compile(source, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None


def _line(code: CodeType, number: int) -> Line:
    """Return a line with its innermost function."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            numbers = [line for _, _, line in constant.co_lines() if line is not None]
            if numbers and constant.co_firstlineno <= number <= max(numbers):
                return _line(constant, number)
    return Line(code, number)


def _sets(node: ast.expr, attribute: str) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == attribute and isinstance(node.ctx, ast.Store)
    if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "setattr":
        named = node.args[1:2]
        return any(isinstance(arg, ast.Constant) and arg.value == attribute for arg in named)
    return False


class _Mention(NamedTuple):
    node: ast.Attribute | ast.Constant
    owner: str | None
    """Name of the class around it."""


@lru_cache(maxsize=256)  # each captured step of a run asks for the same attributes
def _mentions_of(tree: ast.AST, attribute: str) -> tuple[_Mention, ...]:
    return tuple(_mentions(tree, attribute))


def _mentions(tree: ast.AST, attribute: str, owner: str | None = None) -> Iterator[_Mention]:
    """Yield the attributes of a name, and strings that may contain it, as for `getattr`."""
    for node in ast.iter_child_nodes(tree):
        inner = node.name if isinstance(node, ast.ClassDef) else owner
        is_attribute = isinstance(node, ast.Attribute) and node.attr == attribute
        if is_attribute or (isinstance(node, ast.Constant) and _may_name(node.value, attribute)):
            yield _Mention(node, owner)  # type: ignore[arg-type]
        yield from _mentions(node, attribute, inner)


def _may_name(value: object, attribute: str) -> bool:
    """Return whether a string may lead to an attribute: whole, as a path, or as a beginning."""
    if not isinstance(value, str) or not value or any(sign.isspace() for sign in value):
        return False
    parts = value.split(".")
    return attribute in parts or (parts[-1] != "" and attribute.startswith(parts[-1]))


def _is_assigned(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)


def _is_read(use: _Mention, names: set[str]) -> bool:
    """Return whether code may read the attribute of one of some classes."""
    if _is_assigned(use.node):
        return use.owner not in names  # another's code may replace it for a use of its own
    is_own = isinstance(use.node, ast.Attribute) and getattr(use.node.value, "id", "") == "self"
    return not is_own or use.owner is None or use.owner in names


def _given_elements(node: ast.Assign | ast.Call, *, shares: bool) -> str | None:
    """Return the target of a statement that gives it the elements of another tensor."""
    if isinstance(node, ast.Assign):
        (target, *_) = node.targets
        is_data = isinstance(target, ast.Attribute) and target.attr == "data"
        return ast.unparse(target.value) if is_data and isinstance(target, ast.Attribute) else None
    if shares or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    return ast.unparse(node.func.value).removesuffix(".data") if node.func.attr == "copy_" else None


@lru_cache(maxsize=16)
def _dead_stores_of(tree: ast.AST) -> tuple[tuple[ast.stmt, ast.stmt], ...]:
    return tuple(dead_stores(tree))


@lru_cache(maxsize=16)
def _misplaced_writes_of(tree: ast.Module) -> tuple[MisplacedWrite, ...]:
    return tuple(misplaced_writes(tree))


def dead_stores(tree: ast.AST) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    """Yield assignments to a name, each with the one that replaces its value unread.

    In a loop, an assignment replaces its own value of the pass before if nothing in the loop reads
    it. Branches and loops between the two, and loops that are left early, are left alone.
    """
    for node in ast.walk(tree):
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(body, list):
                yield from _replaced(body)
        if isinstance(node, ast.For) and not _leaves_early(node):
            yield from ((stmt, stmt) for stmt in node.body if _is_lost_in(node, stmt))


def _replaced(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    names = [_target(statement) for statement in body]
    for position, (name, statement) in enumerate(zip(names, body, strict=True)):
        is_assigned_again = name is not None and name in names[position + 1 :]
        for following in body[position + 1 :] if is_assigned_again else ():
            if _uses(following, name, ast.Load):
                break
            if _target(following) == name:
                yield statement, following
            if _uses(following, name, ast.Store):
                break


def _is_lost_in(loop: ast.For, statement: ast.stmt) -> bool:
    name = _target(statement)
    return name is not None and not any(_uses(one, name, ast.Load) for one in loop.body)


def _leaves_early(loop: ast.For) -> bool:
    leaving = (ast.Break, ast.Continue, ast.Return, ast.Yield)
    return any(isinstance(node, leaving) for one in loop.body for node in ast.walk(one))


def _target(statement: ast.stmt) -> str | None:
    """Return the name to which a statement assigns a value, None for all other statements."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) > 1:
        return None
    return getattr(statement.targets[0], "id", None)


def _uses(statement: ast.stmt, name: str | None, context: type[ast.expr_context]) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, context)
        for node in ast.walk(statement)
    )


def _fills(node: ast.Call) -> bool:
    """Return whether a call fills a tensor, not called a bias, with a constant."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name not in ("constant_", "fill_", "ones_", "zeros_"):
        return False
    return "bias" not in ast.unparse(node)


def _is(written: str, name: str) -> bool:
    """Return whether an expression such as `self.layers[0].weight` matches `layers.0.weight`."""
    parts = written.replace("[", ".").replace("]", "").split(".")
    own = name.split(".")
    # The last two parts: the object before them has any name in the script.
    depth = min(2, len(own))
    return parts[-depth:] == own[-depth:]


def _may_be(written: str, name: str) -> bool:
    return written.rpartition(".")[2] == name.rpartition(".")[2]


def _single(sites: list[int | None]) -> int | None:
    lines = dict.fromkeys(site for site in sites if site is not None)
    return next(iter(lines)) if len(lines) == 1 else None
