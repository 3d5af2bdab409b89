"""Finds the operations that modules repeat in unrolled loops."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from gradscope.analysis.recording_index import StepView
from gradscope.analysis.report import Report
from gradscope.frozen import dataclass
from gradscope.recording.records import NodeRecord
from gradscope.report.graph.loops import loops
from gradscope.report.graph.tensor_links import module_of

OUTSIDE = -1
"""Stands for everything outside all modules."""

Surroundings = Callable[[NodeRecord], Iterable[tuple[int, int | None]]]
"""Returns the modules around a node, each with the module in it that holds the node; None for the
module that made the node.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The turn of a loop in which an operation is repeated."""

    loop: int
    """Index of the loop, in the order of their ends."""
    node: int
    """Node that represents the operation of all turns: the first of them."""
    number: int
    """Number of the turn, from 0."""


def unrolled(nodes: Sequence[NodeRecord], around: Surroundings) -> dict[int, Turn]:
    """Return the turn of each repeated operation, by node.

    A turn has the operations of a module itself, and the modules that it calls.

    Args:
        nodes: In the order of the forward.
        around: Where they are.
    """
    inside: dict[int, list[tuple[Hashable, int]]] = {}
    for node in nodes:
        if node.kind != "operation":
            continue
        for module, held in around(node):
            entries = inside.setdefault(module, [])
            key: Hashable = (node.operation, node.site) if held is None else held
            # The content of a called module is one entry.
            if held is None or not entries or entries[-1][0] != key:
                entries.append((key, node.index))
    turns: dict[int, Turn] = {}
    every = (
        (loop, found) for found in inside.values() for loop in loops([key for key, _ in found])
    )
    for number, (loop, entries) in enumerate(every):
        first: dict[int, int] = {}
        for entry in loop:
            key, index = entries[entry.position]
            # The key of an operation is a tuple, that of a module an index.
            if isinstance(key, tuple):
                drawn = first.setdefault(entry.offset, index)
                turns[index] = Turn(loop=number, node=drawn, number=entry.turn)
    return turns


def module_surroundings(
    report: Report, view: StepView, same: Callable[[int], int] = lambda module: module
) -> Surroundings:
    """Return where nodes are, without the lists of modules around them, which are never called.

    Args:
        report: Whose modules they are.
        view: The step.
        same: Maps a module to the one that is drawn for it.
    """
    paths: list[tuple[int, ...]] = []
    for row in report.modules:
        outer = () if row.parent is None else paths[row.parent]
        is_list = bool(row.path) and not row.calls and not row.own_parameters
        paths.append(outer if is_list else (*outer, row.index))

    def around(node: NodeRecord) -> Iterator[tuple[int, int | None]]:
        home = module_of(view, node)
        held: int | None = None
        for module in reversed((OUTSIDE, *(() if home is None else paths[home]))):
            yield module, held
            held = same(module)

    return around
