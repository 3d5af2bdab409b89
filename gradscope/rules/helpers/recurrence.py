"""Gradients of recurrent layers: how quickly their memory fades, and where they grow.

With a loss at every time step each state has a second way to the loss: no chain of operations is
crossed by every path, and the spine shows nothing. The calls of the recurrent weight show it then.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from gradscope.analysis.reach import Reach
from gradscope.analysis.recording_index import StepView
from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import HorizonRecord, PathCutRecord
from gradscope.recording.finding import RelatedLocation
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.growth_position import initialisation_site

FADED = 2.0
"""Orders of magnitude after which a gradient counts as lost: 1 % remains."""
FEWEST_CALLS = 8
"""Minimum number of calls for a trend."""

_FEWEST_MEASURED = 4
"""Minimum number of norms above zero that show how they decrease."""

_CELLS = frozenset({"GRUCell", "LSTMCell", "RNNCell"})
_PRODUCTS = frozenset(
    {"BmmBackward0", "DivBackward0", "MmBackward0", "MulBackward0", "MvBackward0"}
)

_LEAST = 1e-45
"""Replaces a norm of zero: the smallest number of float32."""
_RECURRENT = ("Cell", "RNN", "LSTM", "GRU")
_FUSED = "ThnnFusedLstmCellBackward0"


@dataclass(frozen=True, slots=True)
class Memory:
    """A recurrent layer, and the change of its gradient per time step."""

    record: HorizonRecord
    path: str
    slope: float
    """Orders of magnitude by which the gradient fades per step; negative if it grows."""

    @property
    def horizon(self) -> float:
        """Number of steps after which 1 % of the gradient remains; infinite if it does not fade."""
        return FADED / self.slope if self.slope > 0 else math.inf

    @property
    def growth(self) -> float:
        """Decades by which the gradient grows from the last step to the first."""
        return -self.slope * self.record.steps

    @property
    def faded(self) -> float:
        """Decades lost between the first output that is used and the first input."""
        return self.slope * self.record.read_from


def memories(context: RuleContext) -> Iterator[Memory]:
    """Yield the recurrent layers, in the order of the model."""
    for record in context.recording.evidence_of(HorizonRecord):
        slope = _slope(record.norms)
        if slope is not None:
            yield Memory(record, context.recording.modules[record.module].path, slope)


def _slope(norms: tuple[float, ...]) -> float | None:
    """Return the slope of the logarithms by least squares, over the steps before any is zero."""
    levels = []
    for norm in reversed(norms):
        # Underflow ends the trend: the zeros before would make the slope seem steeper or have no
        # logarithm.
        if norm <= 0 or not math.isfinite(norm):
            break
        levels.append(math.log10(norm))
    if len(levels) < 2:
        return None
    middle, mean = (len(levels) - 1) / 2, sum(levels) / len(levels)
    spread = sum((position - middle) ** 2 for position in range(len(levels)))
    shared = sum((position - middle) * (level - mean) for position, level in enumerate(levels))
    return -shared / spread


@dataclass(frozen=True, slots=True)
class Recurrence:
    """One operation, called again and again on what its last call made."""

    parameter: int | None
    """Weight that every call takes; None for a loop that multiplies by other tensors."""
    calls: tuple[NodeRecord, ...]
    """Calls of the operation, in forward order."""
    decades: float
    """Orders of magnitude by which the gradient grows from the last quarter of the calls back to
    the first, without the growth from summing the losses of all steps.
    """


def recurrences(context: RuleContext) -> Iterator[Recurrence]:
    """Yield the recurrences of the first step's graph whose gradient grows during backward."""
    for parameter, node in context.parameter_nodes.items():
        # A bias is added in each call and does not carry the state on.
        if len(context.recording.parameters[parameter].shape.dims) < 2:
            continue
        calls = _alike([one for one in context.consumers(node) if one.sequence is not None])
        if len(calls) < FEWEST_CALLS:
            continue
        decades = growth(context.first, calls)
        # A layer that is applied to each element of a list has as many calls, side by side: their
        # gradients are no trend over time.
        if decades is not None and decades > 0 and _is_chain(context, calls):
            yield Recurrence(parameter, calls, decades)
    for calls in _products(context):
        decades = growth(context.first, calls)
        if decades is not None and decades > 0 and _is_chain(context, calls):
            yield Recurrence(None, calls, decades)


def _products(context: RuleContext) -> Iterator[tuple[NodeRecord, ...]]:
    """Yield the products that a loop within one call of a module makes on one line."""
    loops: dict[tuple[str, int | None, int | None], list[NodeRecord]] = {}
    for node in context.first.nodes:
        if node.operation in _PRODUCTS and node.site is not None and node.sequence is not None:
            loops.setdefault((node.operation, node.site, node.module_call), []).append(node)
    for nodes in loops.values():
        if len(nodes) >= FEWEST_CALLS:
            yield _in_order(nodes)


@dataclass(frozen=True, slots=True)
class Fading:
    """A recurrence whose gradient fades towards its first call."""

    calls: tuple[NodeRecord, ...]
    """Calls of the operation, in forward order."""
    decades: float
    """Orders of magnitude by which the gradient decreases from the last quarter of the calls to the
    first.
    """
    slope: float
    """Orders of magnitude per call, as far as the norms are above zero."""


def fadings(context: RuleContext) -> Iterator[Fading]:
    """Yield the recurrences of the first step's graph whose gradient fades during backward.

    The state of an LSTM cell has two parts, and hand-written cells have gates beside their state:
    no chain of operations is crossed by every path. The calls of the recurrent weight show it.
    """
    for parameter, node in context.parameter_nodes.items():
        if len(context.recording.parameters[parameter].shape.dims) < 2:
            continue
        calls = _alike([one for one in context.consumers(node) if one.sequence is not None])
        norms = _norms(context.first, calls) if len(calls) >= FEWEST_CALLS else None
        if norms is None:
            continue
        decades = fall(norms)
        if decades is not None and decades > 0 and _is_chain(context, calls):
            measured = max(sum(norm > 0 for norm in norms), 2)
            slope = decades / (len(calls) - 1)
            if measured < len(norms):
                slope = (math.log10(norms[-1]) - math.log10(norms[-measured])) / (measured - 1)
            yield Fading(calls, decades, slope)


def fall(norms: Sequence[float]) -> float | None:
    """Return the decrease from the last to the first norm in powers of ten; None if unknown."""
    quarter = len(norms) // 4
    levels = [math.log10(max(norm, _LEAST)) for norm in norms if norm < math.inf]
    if len(levels) < len(norms) or not norms[-1] > 0:
        return None
    # Norms before the first one above zero are rounded to zero, and show no decrease.
    measured = levels[next(i for i, norm in enumerate(norms) if norm > 0) :]
    if len(measured) < _FEWEST_MEASURED:
        return None
    # A single closed gate causes one jump; a fading gradient falls in most steps.
    each = median(after - before for before, after in pairwise(measured)) * (len(levels) - 1)
    return min(median(levels[-quarter:]) - median(levels[:quarter]), each)


def _norms(view: StepView, calls: tuple[NodeRecord, ...]) -> list[float] | None:
    stats = [view.tensor_stats.get(view.measured(TensorRef(node=c.index, slot=0))) for c in calls]
    norms = [stat.gradient.norm for stat in stats if stat is not None and stat.gradient is not None]
    return norms if len(norms) == len(calls) else None


def growth(view: StepView, calls: tuple[NodeRecord, ...]) -> float | None:
    """Return the growth of a step's gradient in powers of ten; None if not measured.

    Gradients of T losses that join on the way add up to T times one of them without any explosion.
    """
    norms = _norms(view, calls)
    if norms is None:
        return None
    quarter = len(norms) // 4
    # Quarters instead of single calls, since the loss may weigh its first or last step in another
    # way.
    early, late = median(norms[:quarter]), median(norms[-quarter:])
    if not (0 < late < math.inf and 0 < early < math.inf):
        return None
    levels = [math.log10(norm) for norm in norms if 0 < norm < math.inf]
    # A loss with unequal weights causes one jump; an exploding gradient grows in most steps.
    each = median(before - after for before, after in pairwise(levels)) * (len(levels) - 1)
    return min(math.log10(early / late), each) - math.log10(len(norms))


def growth_later(
    context: RuleContext, views: Sequence[StepView], found: Recurrence
) -> float | None:
    """Return the growth in the last step with the same graph; None without one."""
    graph = None if context.first.step is None else context.first.step.graph
    for view in reversed(views):
        # With another graph, as after sequences of another length, the calls are not the same ones.
        if view.step is not None and view.step.graph == graph:
            decades = growth(view, found.calls)
            if decades is not None:
                return decades
    return None


def origin_of(
    context: RuleContext, found: Recurrence
) -> tuple[str, int | None, list[RelatedLocation | None]]:
    """Return what enlarges a recurrence's gradient, the line to blame, and the other lines."""
    loop = found.calls[0].site
    if found.parameter is None:
        made = _factor_site(context, found)
        others = [context.related(made, "the factor is made here")] if made != loop else []
        return "a product on this line", loop, others
    record = context.recording.parameters[found.parameter]
    drawn = initialisation_site(context, [record.module])
    sites = (
        (record.site, f"{record.name} is made here"),
        (loop, "the loop that applies it"),
    )
    site = loop if drawn is None else drawn
    return (
        f"`{record.name}`",
        site,
        [context.related(other, text) for other, text in sites if other != site],
    )


def _factor_site(context: RuleContext, found: Recurrence) -> int | None:
    """Return the line of the operation that made what every call multiplies by."""
    nodes, own = context.recording.nodes, {call.index for call in found.calls}
    first, last = found.calls[0], found.calls[-1]
    for ref in context.successors.get(last.index, ()):
        node = nodes[ref.node]
        while node.site == last.site and len(inputs := context.successors.get(node.index, ())) == 1:
            node = nodes[inputs[0].node]  # the part of it for one step
        # The operand that depends on an earlier call is the state; the other one is the factor.
        is_state = bool(own & {one.index for one in context.behind([node.index])} - {first.index})
        if not is_state and node.site is not None:
            return node.site
    return None


def _alike(users: list[NodeRecord]) -> tuple[NodeRecord, ...]:
    """Return the most that are of one operation and line, in the order of the forward."""
    groups: dict[tuple[str, int | None], list[NodeRecord]] = {}
    for user in users:
        groups.setdefault((user.operation, user.site), []).append(user)
    # A weight may also be used for something else, such as a penalty on it or tied output.
    return _in_order(max(groups.values(), key=len, default=[]))


def _in_order(nodes: list[NodeRecord]) -> tuple[NodeRecord, ...]:
    """Return nodes in the order of the forward."""
    return tuple(sorted(nodes, key=lambda node: node.sequence or 0))


def _is_chain(context: RuleContext, calls: tuple[NodeRecord, ...]) -> bool:
    """Return whether each call uses the one before it, instead of running in parallel."""
    behind = {node.index for node in context.behind([calls[-1].index])}
    return all(call.index in behind for call in calls)


def calls_from_zero(context: RuleContext, parameter: int) -> int:
    """Return how often a cell was called that gets no gradient for its hidden state; 0 for one.

    A single call has no other state than the first, which is zero.
    """
    record = context.recording.parameters[parameter]
    if context.recording.modules[record.module].class_name not in _CELLS:
        return 0
    calls = sum(call.module == record.module for call in context.recording.calls)
    return calls if record.name.endswith("weight_hh") and calls > 1 else 0


def cuts_cell_states(context: RuleContext, cut: PathCutRecord) -> bool:
    """Return whether a cut takes nothing but the memory cells of an `nn.LSTMCell`.

    The hidden state is a product with an output gate, the memory is the sum before.
    """
    recording = context.recording
    for ref in cut.origins:
        node = recording.nodes[ref.node]
        call = None if node.module_call is None else recording.calls[node.module_call]
        if call is None or recording.modules[call.module].class_name != "LSTMCell":
            return False
        is_memory = ref.slot == 1 if node.operation == _FUSED else node.operation == "AddBackward0"
        if not is_memory:
            return False
    return bool(cut.origins)


def own_states(context: RuleContext, cut: PathCutRecord) -> list[int]:
    """Return the calls of recurrent modules whose input they made themselves, before a cut."""
    recording = context.recording
    lineage = context.shared(Reach).subtrees.lineage
    # A cell by hand owns its layers, and these own the parameters.
    direct = {recording.parameters[one].module for one in cut.parameters}
    owners = {around for one in direct if one is not None for around in lineage(one)}
    joined = {recording.nodes[node].module_call for node in cut.joins}
    called = Counter(call.module for call in recording.calls)

    def is_recurrent(call: int) -> bool:
        module = recording.calls[call].module
        return (
            module in owners
            and called[module] > 1  # not what runs the cell
            and any(word in recording.modules[module].class_name for word in _RECURRENT)
        )

    innermost = (next(filter(is_recurrent, calls_around(context, one)), None) for one in joined)
    return sorted({call for call in innermost if call is not None})


def calls_around(context: RuleContext, call: int | None) -> Iterator[int]:
    """Yield a call of a module, and the calls around it."""
    while call is not None:
        yield call
        call = context.recording.calls[call].parent


def recurrent_of(context: RuleContext, node: int) -> int | None:
    """Return the recurrent module in a call of which a node was made, if any."""
    recording = context.recording
    call = recording.nodes[node].module_call
    module = None if call is None else recording.calls[call].module
    is_recurrent = module is not None and any(
        word in recording.modules[module].class_name for word in _RECURRENT
    )
    return module if is_recurrent else None


def is_connected(context: RuleContext, call: int) -> bool:
    """Return whether a call of a module uses what an earlier one made, with its gradient."""
    nodes, calls = context.recording.nodes, context.recording.calls
    module = calls[call].module
    own = [
        node.index
        for node in context.first.nodes
        if node.module_call is not None and call in calls_around(context, node.module_call)
    ]
    return any(
        other != call and calls[other].module == module
        for node in context.behind(own)
        for other in calls_around(context, nodes[node.index].module_call)
    )
