"""Kinds of dead ends: how sure it is that a gradient of zero stays, and what it costs."""

from collections.abc import Iterable, Iterator, Set

from gradscope.analysis.reach import Reach
from gradscope.frozen import dataclass
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.flow import nodes_beside, reached_beside
from gradscope.rules.helpers.outputs import (
    feeds_loss,
    is_margin,
    normalises_alone,
    normalises_one_feature,
    weighs_positions,
)
from gradscope.rules.helpers.zeros.dead_ends import DeadEnd
from gradscope.rules.helpers.zeros.phrasing import (
    CUTTING,
    FLOORS,
    ROUTING,
    WHATEVER_VALUES,
    twice_differentiated,
)

_ROUNDING = ("Round", "Floor", "Ceil", "Trunc", "Sgn", "Sign")
_SCALING = ("Div", "Mul")
_SHIFTING = ("Sub", "Add", "Clamp")
"""Prefixes of operations that stand before and after the rounding of a quantizer."""
_MOST_SUMS = 3
"""Maximum number of sums and views between a rounding and the product that follows it."""
_REDUCTIONS = (
    *("Max", "Min", "Amax", "Amin", "Aminmax", "Mean", "Sum", "Std", "Var"),
    *("Norm", "LinalgVectorNorm"),
)


def lasts(context: RuleContext, end: DeadEnd) -> bool:
    """Return whether parameters learned earlier in a run, and get zeros from here to its end."""
    return context.run is not None and context.run.ceased.issuperset(end.parameters)


def is_always_one(context: RuleContext, end: DeadEnd) -> bool:
    """Return whether a softmax over a layer's only output predicts, or weighs positions."""
    return (
        end.is_over_one_element
        and normalises_one_feature(context, end.node)
        and (feeds_loss(context, end.node) or weighs_alone(context, end))
    )


def weighs_alone(context: RuleContext, end: DeadEnd) -> bool:
    """Return whether a softmax over one element weighs positions of another dimension."""
    return end.is_over_one_element and weighs_positions(context, end.node)


def is_flat_output(context: RuleContext, end: DeadEnd) -> bool:
    """Return whether an operation makes a prediction that no value of its input changes."""
    return (
        not end.zeros
        and not end.underflows
        and not end.is_over_one_element
        and not twice_differentiated(end)
        and end.node.operation.startswith((*CUTTING, *WHATEVER_VALUES))
        and feeds_loss(context, end.node)
        and not is_margin(context, end.node)
    )


def is_settled(context: RuleContext, end: DeadEnd) -> bool:
    """Return whether no batch gives a gradient: the operation does not depend on the data.

    So it is for a softmax over the single best of several, for a normalisation of single elements,
    and for a clamp of a parameter itself.
    """
    if end.node.index in normalises_alone(context):
        return True
    inputs = [context.recording.nodes[one.node] for one in context.successors[end.node.index]]
    if end.is_over_one_element:
        return any(one.operation == "TopkBackward0" for one in inputs)
    is_clamp = end.node.operation.startswith("Clamp")
    return is_clamp and any(one.parameter in end.parameters for one in inputs)


def starts_at_zero(context: RuleContext, end: DeadEnd) -> bool:
    """Return whether trained factors of one product start at zero, which no batch changes."""
    records = [context.recording.parameters[zero] for zero in end.zeros]
    return bool(records) and all(record.requires_grad for record in records)


def learns(context: RuleContext) -> bool:
    """Return whether any parameter gets more than zeros in any step."""
    return any(stat.reach == "gradient" for stat in context.recording.parameter_stats)


def is_left_out(context: RuleContext, end: DeadEnd) -> bool:
    """Return whether modules built alike learn, as experts that were chosen do."""
    reach = context.shared(Reach)
    learning = reach.learning - set(end.parameters)
    return (
        not end.zeros
        and end.node.operation.startswith(ROUTING)
        and all(
            next(reach.subtrees.twins(part, learning), None) is not None
            for part in reach.subtrees.parts(end.parameters)
        )
    )


def is_satisfied(context: RuleContext, end: DeadEnd) -> bool:
    """Return whether the loss is zero because a margin is kept, or by training."""
    step = context.first.step
    if step is None or step.loss != 0:
        return False
    has_learned = context.run is not None and context.run.learning.issuperset(end.parameters)
    return has_learned or end.node.operation.startswith(FLOORS)


def never_learns(context: RuleContext) -> bool:
    """Return whether no parameter gets more than zeros in any step of a run of several."""
    run = context.run
    return run is not None and len(context.probes) > 1 and not run.learning


@dataclass(frozen=True, slots=True)
class ScaledRounding:
    """A rounding with a scale that is computed from what it rounds."""

    node: NodeRecord
    scale: NodeRecord
    """The reduction that makes the scale, such as the largest magnitude."""
    parameters: frozenset[int]
    """Parameters whose gradient comes through the scale and nowhere else."""


def scaled_roundings(context: RuleContext) -> Iterator[ScaledRounding]:
    """Yield the roundings behind which parameters learn through their scale alone.

    The derivative of a rounding is zero, so each weight gets at most the gradient of the common
    scale. A straight-through estimator rounds outside of the graph and is not found, nor is a
    fractional part, `x - x.floor()`, whose `x` has a path of its own.
    """
    for node in context.first.nodes:
        stat = context.tensor_stat(node.index, 0) if node.operation.startswith(_ROUNDING) else None
        if stat is None or stat.gradient is None or not stat.gradient.norm:
            continue
        quantizer = _before(context, node) | _after(context, node)
        beside = nodes_beside(context, quantizer)
        # A scale that anything else uses is more than a scale: it may be all that is wanted.
        scales = [one for one in _reductions_beside(context, quantizer) if one.index not in beside]
        blocked = {node.index, *(one.index for one in scales)}
        through_scale = reached_beside(context, {node.index}) - reached_beside(context, blocked)
        held = through_scale & context.parameters_behind([node.index])
        if held:
            yield ScaledRounding(node, scales[0], held)


def _before(context: RuleContext, node: NodeRecord) -> Set[int]:
    """Return a rounding and the operations that scale and shift what it rounds."""
    found, waiting = {node.index}, [node.index]
    while waiting:
        for ref in context.successors.get(waiting.pop(), ()):
            record = context.recording.nodes[ref.node]
            is_step = record.operation.startswith((*_SCALING, *_SHIFTING)) or record.kind == "view"
            if ref.node not in found and is_step:
                found.add(ref.node)
                waiting.append(ref.node)
    return found


def _after(context: RuleContext, node: NodeRecord) -> Set[int]:
    """Return the operations that give what was rounded its scale again.

    A sum counts with a product behind it alone, as of a zero point: others add a path of their own.
    """
    found = set[int]()
    waiting: list[tuple[int, tuple[int, ...]]] = [(node.index, ())]
    while waiting:
        position, sums = waiting.pop()
        for user in context.users.get(position, ()):
            record = context.recording.nodes[user]
            if user in found:
                continue
            if record.operation.startswith(_SCALING):
                found.update((user, *sums))
                waiting.append((user, ()))
            elif len(sums) < _MOST_SUMS and (
                record.kind == "view" or record.operation.startswith(_SHIFTING)
            ):
                waiting.append((user, (*sums, user)))
    return found


def _reductions_beside(context: RuleContext, quantizer: Iterable[int]) -> Iterator[NodeRecord]:
    """Yield the reductions whose result enters a quantizer directly."""
    seen = set[int]()
    for position in quantizer:
        for ref in context.successors.get(position, ()):
            record = context.recording.nodes[ref.node]
            if record.operation.startswith(_REDUCTIONS) and ref.node not in seen:
                seen.add(ref.node)
                yield record
