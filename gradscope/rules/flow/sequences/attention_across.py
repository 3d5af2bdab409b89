"""GS120: attention whose weights sum to 1 along another dimension than that they weigh."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import SoftmaxRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.architectures.attention import is_of_scores, way_to_values
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionAcross(Rule):
    """The weights of attention sum to 1 along another dimension than the one they weigh.

    What it finds:
        A softmax of attention scores over the queries, the heads, or the batch, whose result is
        multiplied with the values: `softmax(scores, dim=1)` where it should be `dim=-1`.

    Why it matters:
        What a query gets is no average of the values: its weights may sum to nearly nothing, or to
        many. Queries, heads or examples compete with each other for each key. Nothing fails, and
        the loss falls more slowly.

    How it is measured:
        In the graph, the softmax of scores that a product of matrices has made, up to the product
        of its result with the values, with only views, casts and dropout in between. That product
        sums over the last dimension of the weights; the softmax has another one. Weights that are
        divided afterwards, as in slot attention, are not judged, nor are transposed ones, nor those
        of values without a gradient. A softmax over the first of two dimensions is judged whatever
        made its scores: the product takes this dimension for the batch, or for the queries. A
        product of two matrices with a parameter, as in a linear layer, is not judged.

    How to fix it:
        `softmax(scores, dim=-1)`: the last dimension of `query @ key.transpose(-2, -1)` is that of
        the keys.

    When it may be wrong:
        If queries are meant to compete for the keys.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1.
    """

    code: ClassVar[str] = "GS120"
    name: ClassVar[str] = "attention-across"
    level: ClassVar[Severity] = "warning"
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line of such a softmax."""
        found = dict[int | None, tuple[SoftmaxRecord, NodeRecord]]()
        for record in context.recording.evidence_of(SoftmaxRecord):
            node = context.recording.nodes[record.node]
            product = _product_across(context, node, record.dimension)
            if product is not None:
                found.setdefault(node.site, (record, product))
        for site, (record, product) in found.items():
            dims = context.recording.nodes[record.node].dims() or ()
            yield self.finding(
                context,
                message=(
                    f"the weights of attention sum to 1 along dimension {record.dimension} of "
                    f"{list(dims)}, but are multiplied with the values along dimension "
                    f"{len(dims) - 1}"
                ),
                remedy="apply softmax along the last dimension: dim=-1",
                site=site,
                related=(context.related(product.site, "multiplied with the values here"),),
                evidence={"dimension": record.dimension, "dimension_of_keys": len(dims) - 1},
            )


def _product_across(context: RuleContext, node: NodeRecord, dimension: int) -> NodeRecord | None:
    """Return the product of weights with values along another dimension than that of a softmax."""
    dims = node.dims() or ()
    if node.operation != "SoftmaxBackward0" or len(dims) < 2 or dimension == len(dims) - 1:
        return None
    # Along a single element, nothing is shared: all weights are 1 there.
    if dims[dimension] == 1 or dims[-1] == 1:
        return None
    over_batch = len(dims) == 2 and dimension == 0
    way = way_to_values(context, node)
    is_attention = way is not None and (over_batch or is_of_scores(context, node))
    return way[1] if way is not None and is_attention else None
