"""A reference that keeps a tensor and its history between steps, and whether it may be detached."""

import ast
import inspect
import linecache
import math
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from torch import Tensor, nn
from torch.autograd.graph import Node

from gradscope.capture.naming import NamedModel
from gradscope.capture.source.lines import Line, created
from gradscope.capture.step.graph import behind, tensors
from gradscope.frozen import dataclass
from gradscope.recording.evidence.failures import CarriedHistory

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
        # In a folder of so many files, the search would take longer than the report may.
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
        # The first is the function itself. A line of a nested function has run on its own account.
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


_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reference:
    attribute: str
    owner: nn.Module | None
    is_older: bool

    @property
    def name(self) -> str:
        """Name in findings."""
        if self.owner is None:
            return self.attribute
        return f"{type(self.owner).__name__}.{self.attribute}"

    @property
    def kinds(self) -> frozenset[str]:
        """Names of the owner's class and of its bases."""
        kinds = () if self.owner is None else type(self.owner).__mro__
        return frozenset(kind.__name__ for kind in kinds)


def carried_over(
    named: NamedModel, graph: Collection[Node], first_number: int, ran: Iterable[Line | None]
) -> CarriedHistory | None:
    """Return what holds part of a graph from before the forward, None if nothing is found.

    Args:
        named: The model's modules.
        graph: The nodes that backward went through.
        first_number: Sequence number of the forward's first node.
        ran: The lines of the forwards.
    """
    lines = {(line.code.co_filename, line.number) for line in ran if line is not None}
    files = {file for file, _ in lines}
    old = _OldNodes(graph, first_number)
    found = [
        _Reference(attribute=name, owner=owner, is_older=is_older)
        for name, owner, value in (*_attributes(named.modules), *_globals(files))
        if (is_older := old.is_in(value)) is not None
    ]
    files |= {file for reference in found for file in _source_of(reference.owner)}
    analysis = DetachAnalysis(files, lines)
    read = [one for one in found if analysis.reads(one.attribute, one.kinds)]
    if not read:
        return None
    first = min(read, key=lambda one: not one.is_older)
    return CarriedHistory(
        name=first.name,
        attribute=first.attribute if first.owner is None else f"self.{first.attribute}",
        is_replaced=not first.is_older,
        is_tended=any(
            _is_out_of_sight(one.owner) or analysis.is_tended(one.attribute, one.kinds)
            for one in read
        ),
    )


def _attributes(modules: Iterable[nn.Module]) -> Iterator[tuple[str, nn.Module, object]]:
    own = ("_parameters", "_modules")
    for module in modules:
        for name, value in (*vars(module).items(), *module._buffers.items()):
            if name not in own and name != "_buffers":
                yield name, module, value


def _globals(files: Collection[str]) -> Iterator[tuple[str, None, object]]:
    # A copy, because reading an attribute may import further modules.
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) in files:
            yield from ((name, None, value) for name, value in list(vars(module).items()))


class _OldNodes:
    """The nodes of a graph that are older than the forward."""

    def __init__(self, graph: Collection[Node], first_number: int) -> None:
        self._graph, self._first = graph, first_number

    def is_in(self, value: object) -> bool | None:
        """Return whether a value's own tensors are that old, None if it leads to no old node."""
        try:
            # `tensors` goes through lists, tuples and dictionaries only.
            inside = list(value) if isinstance(value, deque | set) else value
            nodes = [node for tensor in tensors(inside) if (node := _node(tensor)) is not None]
        except Exception:  # noqa: BLE001 - an object of the user's may raise whatever it is asked
            return None
        if any(self._is_old(node) for node in nodes):
            return True
        return False if any(self._leads_back(node) for node in nodes) else None

    def _leads_back(self, node: Node) -> bool:
        return any(self._is_old(one) for one in behind([node], most=math.inf))

    def _is_old(self, node: Node) -> bool:
        number = created(node)
        return number is not None and number < self._first and node in self._graph


def _node(tensor: Tensor) -> Node | None:
    return tensor.grad_fn if tensor.requires_grad else None


def _source_of(owner: nn.Module | None) -> list[str]:
    """Return the source files of a module's class and of its bases."""
    files = []
    for kind in type(owner).__mro__ if owner is not None else ():
        try:
            file = inspect.getsourcefile(kind)
        except (TypeError, OSError):
            continue
        files += [] if file is None or kind.__module__.startswith("torch.") else [file]
    return files


def _is_out_of_sight(owner: nn.Module | None) -> bool:
    """Return whether the source of a module's class, or of its possible users, is unreadable."""
    files = _source_of(owner)
    return owner is not None and (
        not files or any(not Path(f).is_file() or any(p in f for p in _INSTALLED) for f in files)
    )
