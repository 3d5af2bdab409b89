"""GS122: attention that is masked after its softmax."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import SoftmaxRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.architectures.attention import (
    is_of_scores,
    is_sum_of_pairs,
    way_to_values,
)
from gradscope.rules.helpers.non_finite.gradient_breaks import forward_stats
from gradscope.rules.needs import Needs, has_backward
from gradscope.rules.rule import Rule

_FILLING = frozenset({"MaskedFillBackward0", "MaskedFillBackward1", "WhereBackward0"})
_SAME = 1e-4
"""Relative. Chosen: dropout, the only other factor of zeros, divides by what it keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskAfterSoftmax(Rule):
    """Attention is masked after its softmax: the hidden keys still take a share of the weights.

    What it finds:
        Attention weights whose softmax is over all keys, and of which some are set to zero
        afterwards: `softmax(scores) * mask`, or a `masked_fill` or `where` of its result.

    Why it matters:
        The weights of a query sum to less than 1, by a share that its hidden keys determine. The
        scores of the hidden keys get gradients, and in a causal model each position learns from
        later ones. Nothing fails.

    How it is measured:
        In the graph, the softmax over the last dimension of scores that a product of two computed
        matrices has made, or a sum of one number for each query and one for each key. Between it
        and the product with the values lies an operation that multiplies it by data, or replaces
        elements. All weights are positive before it; after it some are zero, and neither the
        largest nor the norm of all is larger. A module of dropout is no mask. Weights that are
        divided afterwards are not judged, nor are scores that were masked, too: then a hidden key
        has a weight of zero before.

    How to fix it:
        `softmax(scores.masked_fill(hidden, -inf), dim=-1)`: mask the scores.

    When it may be wrong:
        If the weights of a query are meant to sum to less than 1, as for a query that is padding.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3: illegal connections are set
        to minus infinity in the input of the softmax.
    """

    code: ClassVar[str] = "GS122"
    name: ClassVar[str] = "mask-after-softmax"
    level: ClassVar[Severity] = "warning"
    needs: ClassVar[Needs] = (has_backward,)

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        measured = context.shared(forward_stats)
        return None if measured else "the values of the forward were not measured"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that masks weights of attention."""
        found = dict[int | None, tuple[NodeRecord, NodeRecord]]()
        for record in context.recording.evidence_of(SoftmaxRecord):
            node = context.recording.nodes[record.node]
            mask = _mask(context, node, record.dimension)
            if mask is not None:
                found.setdefault(mask.site, (mask, node))
        for mask, softmax in found.values():
            stats = context.shared(forward_stats)
            yield self.finding(
                context,
                message=(
                    "attention is masked after its softmax: the weights of a query do not sum to "
                    "1, and the hidden keys get gradients"
                ),
                remedy="fill the hidden scores with -inf before the softmax",
                site=mask.site,
                related=(
                    context.related(softmax.site, "the softmax over all keys")
                    if softmax.site != mask.site
                    else None,
                ),
                evidence={"smallest_weight": stats[_tensor(softmax)].minimum},
            )


def _mask(context: RuleContext, softmax: NodeRecord, dimension: int) -> NodeRecord | None:
    """Return the operation that sets some weights of attention to zero; None without one."""
    dims = softmax.dims() or ()
    is_over_keys = len(dims) >= 2 and dimension == len(dims) - 1 and dims[-1] > 1
    if softmax.operation != "SoftmaxBackward0" or not is_over_keys:
        return None
    way = way_to_values(context, softmax, through=_FILLING)
    if way is None or not (is_of_scores(context, softmax) or is_sum_of_pairs(context, softmax)):
        return None
    stats = context.shared(forward_stats)
    before = stats.get(_tensor(softmax))
    for one in way[0]:
        after = stats.get(_tensor(one))
        is_filled = one.operation in _FILLING | {"MulBackward0"}
        if before is None or before.minimum <= 0:
            return None
        if is_filled and after is not None and after.minimum == 0 and not _is_dropout(context, one):
            # Dropout of the largest weight leaves a norm that is larger.
            is_unscaled = 0 < after.maximum <= before.maximum * (1 + _SAME)
            is_unscaled &= after.norm <= before.norm * (1 + _SAME)
            return one if is_unscaled else None
    return None


def _is_dropout(context: RuleContext, node: NodeRecord) -> bool:
    if node.module_call is None:
        return False
    call = context.recording.calls[node.module_call]
    return context.recording.modules[call.module].class_name == "Dropout"


def _tensor(node: NodeRecord) -> TensorRef:
    return TensorRef(node=node.index, slot=0)
