"""Converts live graphs to records: nodes, edges, module calls, lines, and the cuts that matter."""

import linecache
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import CodeType
from typing import NamedTuple

from torch import nn
from torch.autograd.graph import Node

from gradscope.capture.naming import NamedModel, dtype_name
from gradscope.capture.source.definitions import Definitions, Registration
from gradscope.capture.source.lines import Line, shown_file
from gradscope.capture.step.cuts import DEEP_COPY, Cut
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.capture.step.graph import VIEW_OPERATIONS, Edge, Graph, leaves_behind
from gradscope.recording.cut_record import CutRecord
from gradscope.recording.records import (
    EdgeRecord,
    ModuleCallRecord,
    ModuleRecord,
    NodeKind,
    NodeRecord,
    Shape,
    Site,
    Skipped,
    TensorRef,
)

_FUSED = "a fused recurrent layer is one node: no gradient by time step"

_HIDING = {
    "CheckpointFunctionBackward": "a reentrant checkpoint hides its operations from the graph; "
    "use_reentrant=False shows them",
    "CompiledFunctionBackward": "a compiled region is one node; --eager shows its inside",
    "CudnnRnnBackward0": _FUSED,
    "DifferentiableGraphBackward": "a TorchScript function is one node; PYTORCH_JIT=0 shows its "
    "inside",
    "MiopenRnnBackward0": _FUSED,
    "MkldnnRnnLayerBackward0": _FUSED,
}
"""Nodes that stand for many operations, and what they hide."""


class GraphPosition(NamedTuple):
    """Position of a graph's records."""

    graph: int
    first_node: int
    first_call: int


class _Known(NamedTuple):
    """Properties that distinguish graphs."""

    operations: list[str]
    successors: list[tuple[tuple[int, int], ...]]
    modules: list[nn.Module]
    """Modules in the order of their calls."""
    position: GraphPosition


class GraphRecords:
    """The records of the distinct graphs of a recording.

    Args:
        named: The model's modules and parameters.
        definitions: The lines that made the modules, as far as they are known.
    """

    def __init__(self, named: NamedModel, definitions: Definitions) -> None:
        self._known: list[_Known] = []
        self._sites: dict[Site, int] = {}
        self._module_positions = {module: position for position, module in enumerate(named.modules)}
        self.modules: list[ModuleRecord] = [
            replace(record, site=self.site_of(definitions.modules.get(module)))
            for module, record in zip(named.modules, named.module_records, strict=True)
        ]
        self.parameters = [
            replace(record, site=self._site_of_registration(definitions.registration(parameter)))
            for parameter, record in zip(named.parameters, named.parameter_records, strict=True)
        ]
        self.calls: list[ModuleCallRecord] = []
        self.nodes: list[NodeRecord] = []
        self.edges: list[EdgeRecord] = []

    def __len__(self) -> int:
        """Return the number of distinct graphs."""
        return len(self._known)

    @property
    def sites(self) -> tuple[Site, ...]:
        """The distinct lines."""
        return tuple(self._sites)

    def add(self, capture: StepCapture) -> GraphPosition:
        """Add a graph unless an equal one exists, and return the position of its records."""
        graph, modules = capture.graph, [call.module for call in capture.modules.calls]
        for known in self._known:
            if known[:3] == (graph.operations, graph.successors, modules):
                return known.position
        position = GraphPosition(len(self._known), len(self.nodes), len(self.calls))
        self._known.append(_Known(graph.operations, graph.successors, modules, position))
        self._add_calls(capture, position)
        self._add_nodes(capture, position)
        first = position.first_node
        self.edges += [
            EdgeRecord(source=first + source, target=first + target, slot=slot)
            for source, successors in enumerate(graph.successors)
            for target, slot in successors
        ]
        return position

    def hidden(self, capture: StepCapture) -> Iterator[Skipped]:
        """Yield what the graph of a capture does not show."""
        counts = Counter(name for name in capture.graph.operations if name in _HIDING)
        for name, count in counts.items():
            yield Skipped(what=f"the inside of {count} x {name}", reason=_HIDING[name])

    def _add_nodes(self, capture: StepCapture, position: GraphPosition) -> None:
        graph, first = capture.graph, position.first_node
        depths = _longest_paths(graph)
        shared = graph.shared_gradients()
        nodes = capture.parameter_nodes()
        counts = Counter(nodes.values())
        # A flat tensor of FSDP1 belongs to several parameters, and to none alone.
        owners = {node: position for position, node in nodes.items() if counts[node] == 1}
        innermost = capture.modules.innermost()
        numbers = graph.numbers
        # Each thread counts separately: a number that occurs twice is ambiguous.
        repeated = {number for number, count in Counter(numbers).items() if count > 1}
        for index, node in enumerate(graph.nodes):
            sequence = None if numbers[index] in repeated else numbers[index]
            call = None if sequence is None else innermost.find(sequence)
            line = None if sequence is None else capture.sites.find(sequence)
            if line is None and call is not None:
                line = capture.modules.calls[call].line
            same = shared.get(index)
            self.nodes.append(
                NodeRecord(
                    index=first + index,
                    graph=position.graph,
                    operation=graph.operations[index],
                    kind=_kind(graph, index, owners),
                    depth=depths[index],
                    sequence=sequence,
                    module_call=None if call is None else position.first_call + call,
                    site=self.site_of(line),
                    outputs=_output_shapes(node),
                    parameter=owners.get(index),
                    same_as=None if same is None else TensorRef(node=first + same[0], slot=same[1]),
                )
            )

    def _add_calls(self, capture: StepCapture, position: GraphPosition) -> None:
        counts: Counter[int] = Counter()
        for call in capture.modules.calls:
            module = self._module(call.module)
            self.calls.append(
                ModuleCallRecord(
                    index=len(self.calls),
                    graph=position.graph,
                    module=module,
                    call=counts[module],
                    parent=None if call.parent is None else position.first_call + call.parent,
                    site=self.site_of(call.line),
                    inputs=_references(call.inputs, capture.graph, position),
                    outputs=_references(call.outputs, capture.graph, position),
                )
            )
            counts[module] += 1

    def _module(self, module: nn.Module) -> int:
        """Return the index of a module's record, added if it lies outside the model."""
        position = self._module_positions.get(module)
        if position is None:
            position = self._module_positions[module] = len(self.modules)
            name = type(module).__name__
            taken = sum(m.class_name == name and not m.in_model for m in self.modules)
            self.modules.append(
                ModuleRecord(
                    index=position,
                    path=f"{name}#{taken + 1}" if taken else name,
                    aliases=(),
                    class_name=name,
                    parent=None,
                    in_model=False,
                    training=module.training,
                )
            )
        return position

    def _site_of_registration(self, registration: Registration | None) -> int | None:
        return None if registration is None else self.site_of(registration.line)

    def site_of(self, line: Line | None) -> int | None:
        """Return the index of a line's record, added if it is new."""
        if line is None:
            return None
        file = line.code.co_filename
        site = Site(
            file=shown_file(file),
            line=line.number,
            function=line.code.co_qualname,
            source=linecache.getline(file, line.number).strip(),
        )
        return self._sites.setdefault(site, len(self._sites))


def _kind(graph: Graph, node: int, owners: dict[int, int]) -> NodeKind:
    if node in graph.leaves:
        return "parameter" if node in owners else "leaf"
    return "view" if graph.operations[node] in VIEW_OPERATIONS else "operation"


def _output_shapes(node: Node) -> tuple[Shape | None, ...]:
    """Return shape and type of a node's outputs, None for non-differentiable ones."""
    return tuple(
        None
        # Reading the shape of a nested tensor's metadata raises.
        if metadata.is_nested_tensor
        else Shape(dims=tuple(metadata.shape), dtype=dtype_name(metadata.dtype))
        for metadata in node._input_metadata
    )


def _references(
    edges: Sequence[Edge], graph: Graph, position: GraphPosition
) -> tuple[TensorRef, ...]:
    """Return the tensors that are part of the graph."""
    slots = (slot for edge in edges if (slot := graph.slot_of(edge)) is not None)
    return tuple(TensorRef(node=position.first_node + node, slot=slot) for node, slot in slots)


def _longest_paths(graph: Graph) -> list[int]:
    """Return the length of the longest path from the loss to each node, in edges."""
    waiting = [0] * len(graph.nodes)
    for successors in graph.successors:
        for node, _ in successors:
            waiting[node] += 1
    depths = [0] * len(graph.nodes)
    ready = [0]
    while ready:
        node = ready.pop()
        for following, _ in graph.successors[node]:
            depths[following] = max(depths[following], depths[node] + 1)
            waiting[following] -= 1
            if not waiting[following]:
                ready.append(following)
    return depths


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
        return self._capture.graph.by_number()

    def _parameters_behind(self, cut: Cut) -> dict[int, Line | None]:
        """Return the parameters that the cut stops, with the last line on each one's path."""
        found: dict[int, Line | None] = {}
        explains = self._unreached and not self._copies_learning(cut)
        for edge in cut.sources.values() if explains else ():
            line = None if edge.node is None else self._capture.line_of(edge.node)
            for leaf in leaves_behind(edge):
                position = self._unreached.get(id(leaf))
                if position is not None:
                    found.setdefault(position, line)
        return found

    def _copies_learning(self, cut: Cut) -> bool:
        """Return whether a copied model learns itself: then the copy is a target or a teacher."""
        leaves = (edge.leaf for edge in cut.sources.values() if cut.operation == DEEP_COPY)
        return any(leaf is not None and id(leaf) not in self._unreached for leaf in leaves)

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
        for cut, parameters in self._explained:
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
                    comes_back=cut.comes_back,
                    straight_through=self._is_straight_through(cut),
                    disabled=site_of(self._disabling(cut)),
                )

    def _disabling(self, cut: Cut) -> Line | None:
        """Return the line that disabled gradients around a cut: a decorator, or a statement."""
        if cut.kind != "no-grad" or cut.operation == "checkpoint":
            return None
        code = None if cut.line is None else cut.line.code
        if code is not None and _is_decorated(code):
            return Line(code, code.co_firstlineno)
        return self._capture.switches.before(cut)

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
    return f" in line {line.number} of {Path(shown_file(line.code.co_filename)).name}"
