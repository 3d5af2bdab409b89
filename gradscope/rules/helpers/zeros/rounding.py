"""Weights that learn through the scale of their rounding alone."""

from collections.abc import Iterable, Iterator, Set

from gradscope.frozen import dataclass
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.flow import nodes_beside, reached_beside

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
