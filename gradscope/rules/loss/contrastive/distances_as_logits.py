"""GS735: classes that are more likely the farther they are."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import SoftmaxRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.flow import SAME_NUMBERS, is_likelihood
from gradscope.rules.helpers.non_finite.gradient_breaks import forward_stats
from gradscope.rules.needs import Needs, has_backward, has_forward_values
from gradscope.rules.rule import Lasting, Rule

_SCALING = frozenset({"DivBackward0", "MulBackward0"})
_ROOTS = frozenset({"ClampBackward1", "ClampMinBackward0", "SqrtBackward0"})
_DISTANCES = frozenset({"CdistBackward0", "EuclideanDistBackward0"})
_REDUCED = frozenset({"MeanBackward1", "SumBackward1"})
_NORMS = frozenset({"LinalgVectorNormBackward0", "NormBackward1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DistancesAsLogits(Rule):
    """Distances are logits without a minus: the farthest class is the most likely one.

    What it finds:
        A cross-entropy, or a log-softmax whose elements are the loss, of distances to prototypes,
        centres or codes: `log_softmax(distances)` instead of `log_softmax(-distances)`.

    Why it matters:
        The loss falls while each example moves away from its own class and towards all others. The
        class that is read off as the most likely one is the one farthest away.

    How it is measured:
        In the graph, the input of the log-softmax is a sum or mean of squared differences, a norm
        of differences, or a result of `cdist`. Only views, roots and positive factors lie between,
        no number of it is negative, and the loss averages elements of the log-softmax. There is no
        threshold.

    How to fix it:
        Negate the distances.

    When it may be wrong:
        If the farthest class is meant to be the most likely one.

    Source:
        Snell et al. 2017, "Prototypical Networks for Few-shot Learning" (arXiv 1703.05175),
        equation 2.
    """

    code: ClassVar[str] = "GS735"
    name: ClassVar[str] = "distances-as-logits"
    level: ClassVar[Severity] = "error"
    lasts: ClassVar[Lasting] = "always"
    judges_learning: ClassVar[bool] = True
    needs: ClassVar[Needs] = (has_backward, has_forward_values)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that makes classes of distances."""
        found = dict[int | None, tuple[NodeRecord, NodeRecord]]()
        for record in context.recording.evidence_of(SoftmaxRecord):
            node = context.recording.nodes[record.node]
            distance = _distance(context, node)
            if distance is not None and is_likelihood(context, node):
                found.setdefault(node.site, (node, distance))
        stats = context.shared(forward_stats)
        for softmax, distance in found.values():
            yield self.finding(
                context,
                message=(
                    "a class is more likely the farther it is: the log-softmax gets distances "
                    "without a minus"
                ),
                remedy="negate the distances: log_softmax(-distances)",
                site=softmax.site,
                related=(
                    context.related(distance.site, "the distances")
                    if distance.site != softmax.site
                    else None,
                ),
                evidence={"smallest_logit": stats[_logits(context, softmax)].minimum},
            )


def _logits(context: RuleContext, softmax: NodeRecord) -> TensorRef:
    return context.successors[softmax.index][0]


def _distance(context: RuleContext, softmax: NodeRecord) -> NodeRecord | None:
    """Return the operation that made the distances that are the input of a log-softmax."""
    if softmax.operation != "LogSoftmaxBackward0" or not context.successors.get(softmax.index):
        return None
    stat = context.shared(forward_stats).get(_logits(context, softmax))
    # NaN fails the comparison as well.
    if stat is None or not stat.minimum >= 0:
        return None
    found = context.recording.nodes[_logits(context, softmax).node]
    while not _is_distance(context, found):
        inputs = context.successors.get(found.index, ())
        is_passed = found.kind == "view" or found.operation in SAME_NUMBERS | _SCALING | _ROOTS
        if len(inputs) != 1 or not is_passed:
            return None
        found = context.recording.nodes[inputs[0].node]
    return found


def _is_distance(context: RuleContext, node: NodeRecord) -> bool:
    inputs = [context.recording.nodes[one.node] for one in context.successors.get(node.index, ())]
    if node.operation in _DISTANCES or len(inputs) != 1:
        return node.operation in _DISTANCES
    if node.operation in _NORMS:
        return _is_difference(context, inputs[0])
    is_sum = node.operation in _REDUCED and inputs[0].operation == "PowBackward0"
    return is_sum and _is_square(context, inputs[0])


def _is_square(context: RuleContext, power: NodeRecord) -> bool:
    """Return whether a power is the square of differences, which have both signs."""
    stats, inputs = context.shared(forward_stats), context.successors.get(power.index, ())
    made = stats.get(TensorRef(node=power.index, slot=0))
    given = stats.get(inputs[0]) if len(inputs) == 1 else None
    # The exponent is not recorded: a power of both signs without negative numbers is an even one.
    is_even = given is not None and made is not None and given.minimum < 0 <= made.minimum
    return is_even and _is_difference(context, context.recording.nodes[inputs[0].node])


def _is_difference(context: RuleContext, node: NodeRecord) -> bool:
    return context.behind_views(node.index).operation == "SubBackward0"
