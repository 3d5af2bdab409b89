"""Finds the cuts that explain parameters without a gradient."""

import linecache
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from types import CodeType

from gradscope.capture.source.lines import Line
from gradscope.capture.step.cuts import Cut, leaves_behind
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.capture.step.graph_records import GraphPosition
from gradscope.recording.records import CutRecord

_SUMS = frozenset({"AddBackward0", "RsubBackward0", "RsubBackward1", "SubBackward0"})
_SWITCHES = ("no_grad", "inference_mode", "set_grad_enabled")


class CutFinder:
    """Explains parameters without a gradient by the cuts of a forward.

    Args:
        capture: The capture of the forward.
        unreached: The parameters without a gradient: their indices by `id` of the tensor.
    """

    def __init__(self, capture: StepCapture, unreached: dict[int, int]) -> None:
        self._capture = capture
        self._unreached = unreached
        self._explained = [(cut, self._parameters_behind(cut)) for cut in capture.cuts.cuts]

    @cached_property
    def _nodes(self) -> dict[int, int]:
        return self._capture.nodes_by_number()

    def _parameters_behind(self, cut: Cut) -> dict[int, Line | None]:
        """Return the parameters that the cut stops, with the last line on each one's path."""
        found: dict[int, Line | None] = {}
        for edge in cut.sources.values() if self._unreached else ():
            line = None if edge.node is None else self._capture.line_of(edge.node)
            for leaf in leaves_behind(edge):
                position = self._unreached.get(id(leaf))
                if position is not None:
                    found.setdefault(position, line)
        return found

    def reason(self, position: int) -> str | None:
        """Return the cut that keeps the gradient from a parameter, None if none is known to.

        It prefers cuts whose results are known to lead to the loss: others may only serve
        inspection. Of several, it is the first.
        """
        cuts = [cut for cut, parameters in self._explained if position in parameters]
        if not cuts:
            return None
        cut = max(cuts, key=lambda cut: (bool(_joined(cut, self._nodes)), cut.kind != "read"))
        return f"{_call(cut)}{_position(cut.line)} cuts it off from the loss"

    def unsettled(self, position: int) -> tuple[int, ...]:
        """Return the cuts in front of a parameter, if none of them is known to lead to the loss."""
        behind = [n for n, (_, parameters) in enumerate(self._explained) if position in parameters]
        cuts = self._capture.cuts.cuts
        return () if any(_joined(cuts[n], self._nodes) for n in behind) else tuple(behind)

    def records(
        self, position: GraphPosition, site_of: Callable[[Line | None], int | None]
    ) -> Iterator[CutRecord]:
        """Yield the cuts that explain a missing gradient.

        Args:
            position: Position of the graph's records.
            site_of: Returns the index of a line's record.
        """
        for number, (cut, parameters) in enumerate(self._explained):
            if parameters:
                last = next((line for line in parameters.values() if line is not None), None)
                yield CutRecord(
                    graph=position.graph,
                    operation=cut.operation,
                    kind=cut.kind,
                    site=site_of(cut.line),
                    last=site_of(last),
                    parameters=tuple(sorted(parameters)),
                    joins=tuple(position.first_node + node for node in _joined(cut, self._nodes)),
                    count=cut.count,
                    call=None if cut.call is None else position.first_call + cut.call,
                    whole_call=cut.whole_call,
                    taken_out=cut.taken_out or cut.kind == "read",
                    straight_through=self._is_straight_through(cut),
                    disabled=site_of(self._disabling(number, cut)),
                )

    def _disabling(self, number: int, cut: Cut) -> Line | None:
        """Return the line that disabled gradients around a cut: a decorator, or a statement."""
        if cut.kind != "no-grad" or cut.operation == "checkpoint":
            return None
        code = None if cut.line is None else cut.line.code
        if code is not None and _is_decorated(code):
            return Line(code, code.co_firstlineno)
        return self._capture.switches.before(number)

    def _is_straight_through(self, cut: Cut) -> bool:
        """Return whether the detached part is replaced, as in `x + (q - x).detach()`.

        The detached difference is then added to one of its own terms, which passes the gradient on.
        """
        graph = self._capture.graph
        terms = {
            graph.index.get(node)
            for edge in cut.sources.values()
            if edge.node is not None and type(edge.node).__name__ in _SUMS
            for node, _ in edge.node.next_functions
            if node is not None
        }
        return any(
            graph.operations[node] in _SUMS and following in terms
            for node in _joined(cut, self._nodes)
            for following, _ in graph.successors[node]
        )


def _joined(cut: Cut, nodes: dict[int, int]) -> list[int]:
    return within(cut.joins, nodes)


def within(spans: list[tuple[int, int]], nodes: dict[int, int]) -> list[int]:
    """Return the nodes of the graph among spans of sequence numbers."""
    numbers = (number for start, end in spans for number in range(start, end))
    return sorted({nodes[number] for number in numbers if number in nodes})


def _is_decorated(code: CodeType) -> bool:
    """Return whether a function's first line is a decorator that disables gradients."""
    first = linecache.getline(code.co_filename, code.co_firstlineno).strip()
    return first.startswith("@") and any(name in first for name in _SWITCHES)


def _call(cut: Cut) -> str:
    if cut.operation == "data":
        return ".data"
    if cut.operation == "checkpoint":
        return "checkpoint(use_reentrant=True)"
    return f"{cut.operation}() under no_grad" if cut.kind == "no-grad" else f"{cut.operation}()"


def _position(line: Line | None) -> str:
    if line is None:
        return ""
    return f" in line {line.number} of {Path(line.code.co_filename).name}"
