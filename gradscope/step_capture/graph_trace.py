"""The trace of a captured backward: the line and module of each operation, and where it broke."""

from collections.abc import Collection, Iterator
from difflib import SequenceMatcher
from weakref import ref

from torch import Tensor, nn

from gradscope.capture.source.lines import Line
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.capture.step.graph import Graph
from gradscope.capture.step.modules import ModuleCall
from gradscope.capture.tensor_references import WeakTensor
from gradscope.frozen import dataclass
from gradscope.step_capture.singular_points import is_singular

_MOST_COMPARED = 2_000
"""Maximum number of operations compared one by one between the equal parts."""

_LEAST_ALIKE = 3
"""Minimum number of consecutive equal operations between those parts."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A module call."""

    module: "ref[nn.Module]"
    parent: int | None
    line: Line | None


@dataclass(frozen=True, slots=True)
class GraphTrace:
    """A graph without tensors: operations in the order of the forward, and what made them."""

    step: int
    """Step of the run."""
    operations: tuple[str, ...]
    lines: tuple[Line | None, ...]
    owners: tuple[int | None, ...]
    """By operation: the innermost module call."""
    calls: tuple[_Call, ...]
    inputs: tuple[tuple[int, ...], ...]
    """By operation: the operations that made its inputs; leaves as -1 - their index."""
    leaves: "tuple[WeakTensor[Tensor], ...]"

    @property
    def size(self) -> int:
        """Number of operations."""
        return len(self.operations)


def numbered(graph: Graph) -> list[tuple[int, int]]:
    """Return the operations of a graph in the order of the forward, as (number, node)."""
    numbers = enumerate(graph.numbers)
    return sorted((number, node) for node, number in numbers if number is not None)


def trace_of(capture: StepCapture, step: int) -> GraphTrace:
    """Return the trace of a captured backward."""
    innermost = capture.modules.innermost()
    order = numbered(capture.graph)
    owners = tuple(innermost.find(number) for number, _ in order)
    own = (capture.sites.find(number) for number, _ in order)
    calls = capture.modules.calls
    leaves = list(capture.graph.leaves)
    locations = {node: -1 - position for position, node in enumerate(leaves)}
    locations |= {node: position for position, (_, node) in enumerate(order)}
    return GraphTrace(
        step=step,
        operations=tuple(capture.graph.operations[location] for _, location in order),
        lines=tuple(
            line or (None if call is None else calls[call].line)
            for line, call in zip(own, owners, strict=True)
        ),
        owners=owners,
        # Weak references, because a trace must not keep a replaced model alive.
        calls=tuple(_Call(ref(one.module), one.parent, one.line) for one in calls),
        inputs=tuple(
            tuple(
                locations[node]
                for node, _ in capture.graph.successors[location]
                if node in locations
            )
            for _, location in order
        ),
        leaves=tuple(WeakTensor(capture.graph.leaves[node]) for node in leaves),
    )


def lend(trace: GraphTrace, capture: StepCapture) -> set[int]:
    """Assign the lines and modules of a trace to a graph; return the nodes that got them."""
    order = numbered(capture.graph)
    pairs = _aligned(trace, [capture.graph.operations[location] for _, location in order])
    sites, spans = capture.sites, dict[int, tuple[int, int]]()
    for own, known in pairs:
        number = order[own][0]
        sites.starts.append(number)
        sites.ends.append(number + 1)
        sites.lines.append(trace.lines[known])
        call = trace.owners[known]
        while call is not None:
            first, last = spans.get(call, (number, number))
            spans[call] = min(first, number), max(last, number)
            call = trace.calls[call].parent
    capture.modules.calls += _calls(trace, spans)
    return {order[own][1] for own, _ in pairs}


def _calls(trace: GraphTrace, spans: dict[int, tuple[int, int]]) -> list[ModuleCall]:
    locations: dict[int, int] = {}
    found: list[ModuleCall] = []
    for number, call in enumerate(trace.calls):
        module = call.module()
        if number in spans and module is not None:
            locations[number] = len(found)
            first, last = spans[number]
            parent = None if call.parent is None else locations.get(call.parent)
            found.append(ModuleCall(module, parent, call.line, first, [], last + 1))
    return found


def likeness(trace: GraphTrace, operations: list[str]) -> int:
    """Return how many operations are equal at the start and at the end."""
    ahead, behind = _ends_alike(trace.operations, operations)
    return ahead + behind


def _ends_alike(known: tuple[str, ...], own: list[str]) -> tuple[int, int]:
    shorter = min(len(known), len(own))
    ahead = 0
    # Both ends first: most steps differ in one place at most, and a full comparison is quadratic.
    while ahead < shorter and known[ahead] == own[ahead]:
        ahead += 1
    behind = 0
    while behind < shorter - ahead and known[-1 - behind] == own[-1 - behind]:
        behind += 1
    return ahead, behind


def _aligned(trace: GraphTrace, own: list[str]) -> list[tuple[int, int]]:
    """Return the matching operations of a graph and the trace, in order."""
    known = trace.operations
    ahead, behind = _ends_alike(known, own)
    pairs = [(position, position) for position in range(ahead)]
    left, right = own[ahead : len(own) - behind], known[ahead : len(known) - behind]
    if len(left) * len(right) > 0 and len(left) + len(right) <= _MOST_COMPARED:
        # `autojunk` would ignore operations that occur often, which most do.
        blocks = SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks()
        for block in blocks:
            if block.size >= _LEAST_ALIKE:
                pairs += [(ahead + block.a + i, ahead + block.b + i) for i in range(block.size)]
    pairs += [(len(own) - i, len(known) - i) for i in range(behind, 0, -1)]
    return pairs


_FINITE_ITSELF = frozenset({"Acos", "Asin", "Atan2", "Norm", "Pow", "Prod", "Sqrt", "Std"})
"""Operations whose result is finite where their derivative is infinite."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """An operation that may have broken gradients."""

    operation: str
    line: Line | None
    is_likely: bool
    """Whether it may explain all non-finite gradients, and its own result is finite."""


def suspects(trace: GraphTrace, broken: Collection[int], finite: Collection[int]) -> list[Suspect]:
    """Return the operations that explain the non-finite gradients, the likeliest first.

    Args:
        trace: The operations of an earlier step.
        broken: Parameters (by `id`) with non-finite gradients.
        finite: Parameters with finite gradients.
    """
    all_broken, all_finite = _mask(trace, broken), _mask(trace, finite)
    found = [
        (_rank(trace, location, covers=reached & all_broken == all_broken), location)
        for location, reached in _reached(trace)
        if is_singular(trace.operations[location])
        and reached & all_broken
        and not reached & all_finite
    ]
    return [
        Suspect(trace.operations[location], trace.lines[location], rank >= 2)
        # Of equal ones, the last of the forward comes first in backward.
        for rank, location in sorted(found, key=lambda one: (-one[0], -one[1]))
    ]


def _mask(trace: GraphTrace, parameters: Collection[int]) -> int:
    """Return the leaves among some parameters, as a bit mask."""
    leaves = ((position, leaf()) for position, leaf in enumerate(trace.leaves))
    return sum(
        1 << location for location, leaf in leaves if leaf is not None and id(leaf) in parameters
    )


def _reached(trace: GraphTrace) -> Iterator[tuple[int, int]]:
    """Yield each operation with the leaves that get gradients from it."""
    masks: list[int] = []
    for position, inputs in enumerate(trace.inputs):
        mask = 0
        for one in inputs:
            # Bit masks, because sets of leaves for each operation would be quadratic in memory.
            mask |= 1 << (-1 - one) if one < 0 else masks[one]
        masks.append(mask)
        yield position, mask


def _rank(trace: GraphTrace, location: int, *, covers: bool) -> int:
    base = trace.operations[location].partition("Backward")[0]
    # If the result of another one is not finite, the loss is not, unless where() discarded it.
    return covers + 2 * (base in _FINITE_ITSELF or _is_chosen_from(trace, location))


def _is_chosen_from(trace: GraphTrace, location: int) -> bool:
    users = (user for user, inputs in enumerate(trace.inputs) if location in inputs)
    return any(trace.operations[user].startswith("WhereBackward") for user in users)
