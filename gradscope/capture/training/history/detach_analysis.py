"""Analyzes whether a training loop may detach or reset what is kept between steps."""

import ast
import linecache
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

_MOST_FILES = 1000
_LETS_GO = frozenset({"clear", "detach", "detach_", "pop", "popitem", "popleft", "zero_"})

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mention:
    """A location in the source that names the kept value."""

    node: ast.AST
    parent: ast.AST
    statement: ast.stmt | None = None
    function: _Function | None = None
    """Innermost function around it."""
    kinds: tuple[str, ...] = ()
    """Classes around it."""

    @property
    def is_made(self) -> bool:
        """Whether it stores the value, or is the first value of a global."""
        return isinstance(getattr(self.node, "ctx", None), ast.Store)

    @property
    def lets_go(self) -> bool:
        """Whether it may drop the value, or detach it."""
        if isinstance(self.parent, ast.Attribute) and self.parent.attr in _LETS_GO:
            return True
        if isinstance(getattr(self.node, "ctx", None), ast.Del):
            return True
        value = getattr(self.statement, "value", None)
        return self.is_made and isinstance(value, ast.expr) and any(map(_drops, ast.walk(value)))


class DetachAnalysis:
    """The source that may contain the training loop: files that ran, and files beside them.

    Args:
        files: Files of the code that ran, and of the model.
        ran: File and number of the lines of the forwards.
    """

    def __init__(self, files: Collection[str], ran: Collection[tuple[str, int]]) -> None:
        self._files, self._ran = files, ran

    def reads(self, name: str, kinds: frozenset[str]) -> bool:
        """Return whether code that ran uses this name.

        Args:
            name: Name of an attribute or a global.
            kinds: Classes of the attribute's owner; none for a global.
        """
        return any(
            isinstance(getattr(mention.node, "ctx", None), ast.Load)
            and self._has_run(file, mention)
            for file in self._files
            for mention in self._mentions(file, name, is_global=not kinds)
        )

    def is_tended(self, name: str, kinds: frozenset[str]) -> bool:
        """Return whether other code handles it, or code that ran may drop or detach it.

        Args:
            name: Name of an attribute or a global.
            kinds: Classes of the attribute's owner; none for a global.
        """
        if len(self._texts) > _MOST_FILES:
            return True  # unknown
        return any(
            mention.lets_go if self._has_run(file, mention) else _deals_with_it(mention, kinds)
            for file, text in self._texts.items()
            if file in self._files or self._may_use(text)
            for mention in self._mentions(file, name, is_global=not kinds)
            if file in self._files or not _is_own(mention.node)
        )

    @cached_property
    def _texts(self) -> dict[str, str]:
        """Source by file; slightly more than the maximum if there are that many files."""
        texts = {file: "".join(linecache.getlines(file)) for file in self._files}
        for path in _neighbours(self._files):
            if len(texts) > _MOST_FILES:
                break
            if str(path) not in texts:
                texts[str(path)] = _text(path)
        return texts

    def _may_use(self, text: str) -> bool:
        """Return whether a file names one of the model's files."""
        return any(Path(file).stem in text for file in self._files)

    def _mentions(self, file: str, name: str, *, is_global: bool) -> Iterator[_Mention]:
        text = self._texts.get(file, "")
        if name not in text:
            return
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            return
        wanted = ast.Name if is_global and file in self._files else ast.Attribute
        for mention in _within(_Mention(node=tree, parent=tree)):
            node = mention.node
            if _name(node) == name if isinstance(node, wanted) else _is_given(mention, name):
                yield mention

    def _has_run(self, file: str, mention: _Mention) -> bool:
        function = mention.function
        if function is None:
            return False
        inner = [node for node in ast.walk(function) if isinstance(node, _Function)][1:]
        return any(
            of == file
            and _holds(function, line)
            and not any(_holds(other, line) for other in inner)
            for of, line in self._ran
        )


def _within(outer: _Mention) -> Iterator[_Mention]:
    """Yield every node of a tree, with its enclosing function and classes."""
    waiting = [outer]
    while waiting:
        location = waiting.pop()
        yield location
        node = location.node
        inside = replace(
            location,
            parent=node,
            statement=node if isinstance(node, ast.stmt) else location.statement,
            function=node if isinstance(node, _Function) else location.function,
            kinds=(*location.kinds, node.name)
            if isinstance(node, ast.ClassDef)
            else location.kinds,
        )
        waiting += [replace(inside, node=child) for child in ast.iter_child_nodes(node)]


def _deals_with_it(mention: _Mention, kinds: frozenset[str]) -> bool:
    """Return whether a mention outside the forward does more than create the value."""
    node = mention.node
    if _is_own(node):
        own = not kinds.isdisjoint(mention.kinds)
        return own and getattr(mention.function, "name", "") != "__init__"
    return not (isinstance(node, ast.Name) and mention.is_made and mention.function is None)


def _drops(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is None
    return "detach" in _name(node)


def _name(node: ast.AST) -> str:
    name: str = getattr(node, "attr", getattr(node, "id", ""))
    return name


def _is_own(node: ast.AST) -> bool:
    """Return whether it is an attribute of `self`."""
    return isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self"


def _is_given(mention: _Mention, name: str) -> bool:
    """Return whether it is an attribute name passed as a string, as to `setattr`."""
    node, call = mention.node, mention.parent
    return (
        isinstance(node, ast.Constant)
        and node.value == name
        and isinstance(call, ast.Call)
        and _name(call.func) in ("delattr", "getattr", "setattr")
    )


def _holds(function: _Function, line: int) -> bool:
    return function.lineno <= line <= (function.end_lineno or function.lineno)


def _neighbours(files: Collection[str]) -> Iterator[Path]:
    """Yield the Python files of the packages that files belong to, and those beside them."""
    folders: dict[Path, bool] = {}
    for file in files:
        folder = Path(file).parent
        folders.setdefault(folder, False)
        while (folder / "__init__.py").is_file():
            folders[folder], folder = True, folder.parent
            folders.setdefault(folder, False)
    for folder, is_package in folders.items():
        yield from folder.rglob("*.py") if is_package else folder.glob("*.py")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
