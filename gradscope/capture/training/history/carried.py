"""A reference that keeps a tensor and its history from one step to the next."""

import inspect
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn
from torch.autograd.graph import Node

from gradscope.capture.naming import NamedModel
from gradscope.capture.source.lines import Line, created
from gradscope.capture.step.edges import tensors
from gradscope.capture.training.history.detach_analysis import DetachAnalysis
from gradscope.recording.evidence.failures import Carried

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
) -> Carried | None:
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
    return Carried(
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
            inside = list(value) if isinstance(value, deque | set) else value
            nodes = [node for tensor in tensors(inside) if (node := _node(tensor)) is not None]
        except Exception:  # noqa: BLE001 - an object of the user's may raise whatever it is asked
            return None
        if any(self._is_old(node) for node in nodes):
            return True
        return False if any(self._leads_back(node) for node in nodes) else None

    def _leads_back(self, node: Node) -> bool:
        waiting, seen = [node], {node}
        while waiting:
            location = waiting.pop()
            if self._is_old(location):
                return True
            following = {n for n, _ in location.next_functions if n is not None} - seen
            seen |= following
            waiting += following
        return False

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
