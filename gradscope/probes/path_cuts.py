"""Records what leads to the loss without a gradient although its parameters get one otherwise."""

from collections import deque
from collections.abc import Iterator

from torch import Tensor
from torch.autograd.graph import Node

from gradscope.capture.source.lines import Line
from gradscope.capture.step.cuts import Cut
from gradscope.capture.step.graph import Graph
from gradscope.capture.step.graph_records import within
from gradscope.capture.step.measurements import Slot
from gradscope.probes.context import ProbeContext
from gradscope.recording.evidence.forward import PathCutRecord
from gradscope.recording.records import TensorRef

_MOST_NODES = 20_000
"""Maximum number of nodes visited behind all cuts together."""

_MOST_CUTS = 64

_POSITIVE = ("Clamp", "Exp", "Pow", "Softplus", "Sqrt")
"""Prefixes of operations that make a spread."""

_SHAPING = ("Expand", "Reshape", "Squeeze", "Unsafe", "Unsqueeze", "View")
"""Prefixes of operations that leave the numbers as they are."""


def probe_path_cuts(context: ProbeContext) -> str | None:
    """Record the cuts behind trainable parameters, and where their values enter the graph."""
    nodes = context.capture.graph.by_number()
    trainable = {
        id(context.named.parameters[record.index]): record.index
        for record in context.named.parameter_records
        if record.requires_grad
    }
    left, found = _MOST_NODES, 0
    for cut in context.capture.cuts.cuts:
        # Most cuts, such as those of logging, lead nowhere near the loss.
        joins, read_into = within(cut.joins, nodes), within(cut.read_into, nodes)
        if not (joins or read_into):
            continue
        if not left or found == _MOST_CUTS:
            return "there are too many cuts"
        behind = _Behind(cut, context.capture.graph, trainable, left)
        left -= min(left, behind.visited)
        if behind.parameters:
            found += 1
            layers = within(cut.layer_joins, nodes)
            context.assembler.note(_record(context, cut, behind, (joins, layers, read_into)))
    return None


class _Behind:
    """What a cut stops: a walk from the tensors that it took to the leaves."""

    def __init__(self, cut: Cut, graph: Graph, trainable: dict[int, int], limit: int) -> None:
        self.parameters: set[int] = set()
        self.origins: list[Slot] = []
        """Tensors of the graph, the nearest on each way."""
        edges = list(cut.sources.values())
        waiting = deque((edge.node, edge.slot, False) for edge in edges if edge.node is not None)
        seen = {node for node, _, _ in waiting}
        leaves = [edge.leaf for edge in edges if edge.leaf is not None]
        while waiting and len(seen) < limit:
            node, slot, is_inside = waiting.popleft()
            position = graph.index.get(node)
            if position is not None and not is_inside:
                self.origins.append((position, slot))
                is_inside = True
            # Only the nodes that accumulate into a leaf have it.
            leaf = getattr(node, "variable", None)
            if isinstance(leaf, Tensor):
                leaves.append(leaf)
            for following, number in node.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    if is_inside:
                        waiting.append((following, number, True))
                    else:  # first, or a way through the graph hides where another one enters it
                        waiting.appendleft((following, number, False))
        self.parameters = {trainable[id(leaf)] for leaf in leaves if id(leaf) in trainable}
        self.visited = len(seen)


def _record(
    context: ProbeContext, cut: Cut, behind: _Behind, joins: tuple[list[int], ...]
) -> PathCutRecord:
    position = context.position
    plain, layers, read_into = (
        tuple(position.first_node + node for node in nodes) for nodes in joins
    )
    site_of = context.assembler.site_of
    return PathCutRecord(
        operation=cut.operation,
        kind=cut.kind,
        site=site_of(cut.line),
        last=site_of(next(_lines(context, cut), None)),
        call=None if cut.call is None else position.first_call + cut.call,
        count=cut.count,
        parameters=tuple(sorted(behind.parameters)),
        joins=plain,
        layer_joins=layers,
        read_into=read_into,
        origins=tuple(
            TensorRef(node=position.first_node + node, slot=slot) for node, slot in behind.origins
        ),
        sources=len(cut.sources),
        second_order=cut.second_order,
        is_draw=_is_draw(context.capture.graph, cut),
    )


def _is_draw(graph: Graph, cut: Cut) -> bool:
    """Return whether all that was cut off is a mean plus noise times a spread, used nowhere else.

    So is the result of `rsample()`, and of `mean + std * torch.randn_like(std)`.
    """
    nodes = [edge.node for edge in cut.sources.values()]
    return bool(nodes) and all(
        node is not None and node not in graph.index and _is_noisy_sum(_unshaped(node))
        for node in nodes
    )


def _is_noisy_sum(node: Node) -> bool:
    if not node.name().startswith(("Add", "Addcmul")):
        return False
    operands = [one for one, _ in node.next_functions if one is not None]
    return len(operands) > 1 and any(_is_noise(_unshaped(one)) for one in operands)


def _is_noise(node: Node) -> bool:
    """Return whether an operation multiplies what is positive by what has no gradient."""
    factors = [one for one, _ in node.next_functions]
    if not node.name().startswith("Mul") or None not in factors or len(factors) != 2:
        return False
    spread = next((one for one in factors if one is not None), None)
    return spread is not None and _is_positive(_unshaped(spread))


def _is_positive(node: Node) -> bool:
    """Return whether an operation makes a spread, be it that a constant is added or multiplied."""
    if node.name().startswith(_POSITIVE):
        return True
    operands = [one for one, _ in node.next_functions if one is not None]
    is_shifted = node.name().startswith(("Add", "Mul")) and len(operands) == 1
    return is_shifted and _unshaped(operands[0]).name().startswith(_POSITIVE)


def _unshaped(node: Node) -> Node:
    """Return the operation that computed what others only reshaped."""
    while node.name().startswith(_SHAPING) and node.next_functions[0][0] is not None:
        node = node.next_functions[0][0]
    return node


def _lines(context: ProbeContext, cut: Cut) -> Iterator[Line]:
    for edge in cut.sources.values():
        line = None if edge.node is None else context.capture.line_of(edge.node)
        if line is not None:
            yield line
