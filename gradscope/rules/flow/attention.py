"""GS120, GS122 and GS123: attention along the wrong dimension, and masks that do not hide."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import literal, short
from gradscope.recording.evidence.batches import MaskedWeightRecord
from gradscope.recording.evidence.forward import SoftmaxRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.flow import SAME_NUMBERS
from gradscope.rules.helpers.non_finite.gradient_breaks import forward_stats
from gradscope.rules.needs import Needs, has_backward, probe_ran
from gradscope.rules.rule import Rule

# A matrix product of more than two dimensions leaves this node behind views.
_PRODUCT = "BmmBackward0"
_PRODUCTS = frozenset({_PRODUCT, "MmBackward0"})
_TURNING = ("PermuteBackward0", "TransposeBackward0", "TBackward0")
_HANDING_ON = SAME_NUMBERS | {"NativeDropoutBackward0"}
_SCORING = frozenset(
    {
        "AddBackward0",
        "ClampBackward1",
        "DivBackward0",
        "MaskedFillBackward0",
        "MaskedFillBackward1",
        "MulBackward0",
        "SubBackward0",
        "TanhBackward0",
        "WhereBackward0",
    }
)
"""Operations between a product and the softmax of its scores."""
_PAIRING = frozenset({"DivBackward0", "LeakyReluBackward0", "MulBackward0", "TanhBackward0"})
"""Operations between a sum of pairs and the softmax."""

_FILLING = frozenset({"MaskedFillBackward0", "MaskedFillBackward1", "WhereBackward0"})
_SAME = 1e-4
"""Relative. Chosen: dropout, the only other factor of zeros, divides by what it keeps."""


def _way_to_values(
    context: RuleContext, node: NodeRecord, *, through: frozenset[str] = frozenset()
) -> tuple[list[NodeRecord], NodeRecord] | None:
    """Return the product that sums over the last dimension of some weights, and what lies before.

    Operations of `through` may lie between if they have one input, as views, casts and dropout may.
    """
    nodes = context.recording.nodes
    last, found = (node.dims() or (0,))[-1], node
    between = list[NodeRecord]()
    while True:
        users = [nodes[one] for one in context.users.get(found.index, ())]
        products = [one for one in users if one.operation in _PRODUCTS]
        for one in products:
            operands = context.inputs(one.index)
            dims = found.dims()
            # `weights @ values` sums over the last dimension of its left factor.
            if operands and operands[0] == found.index and dims is not None:
                is_known = len(operands) == 2 and not _has_weight(context, one)
                return (between, one) if dims[-1] == last and is_known else None
        if len(users) != 1 or products:
            return None
        user = users[0]
        # Dropout multiplies by numbers without a gradient.
        is_scaled = user.operation in through | {"MulBackward0"}
        is_scaled = is_scaled and len(context.successors.get(user.index, ())) == 1
        is_plain = user.kind == "view" or user.operation in _HANDING_ON or is_scaled
        if not is_plain or user.operation in _TURNING:
            return None
        between.append(user)
        found = user


def _is_of_scores(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether a softmax is one of scores, which a product of computed matrices has made."""
    nodes = context.recording.nodes
    waiting, seen = context.inputs(node.index), set[int]()
    while waiting:
        one = nodes[waiting.pop()]
        if one.operation in _PRODUCTS and not _has_weight(context, one):
            return True
        is_scoring = one.kind == "view" or one.operation in _HANDING_ON | _SCORING
        if one.index in seen or not is_scoring:
            continue
        seen.add(one.index)
        waiting += context.inputs(one.index)
    return False


def _is_sum_of_pairs(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether the scores of a softmax are sums of one number a query and one a key."""
    nodes = context.recording.nodes
    found = node
    while inputs := context.successors.get(found.index, ()):
        dims = found.dims() or ()
        operands = [nodes[ref.node].dims() or () for ref in inputs]
        if found.operation == "AddBackward0" and len(operands) == 2:
            ends = sorted(one[-2:] for one in operands)
            return len(dims) >= 2 and ends == sorted([(1, dims[-1]), (dims[-2], 1)])
        is_passed = found.kind == "view" or found.operation in _PAIRING
        if len(inputs) != 1 or not (is_passed or found is node):
            return False
        found = nodes[inputs[0].node]
    return False


def _has_weight(context: RuleContext, product: NodeRecord) -> bool:
    """Return whether a product of two matrices is that of a linear layer or another parameter."""
    # Linear layers flatten their input first: a batched product is not theirs.
    if product.operation == _PRODUCT:
        return False
    factors = (context.behind_views(one, _TURNING) for one in context.inputs(product.index))
    return any(one.parameter is not None for one in factors)


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
    way = _way_to_values(context, node)
    is_attention = way is not None and (over_batch or _is_of_scores(context, node))
    return way[1] if way is not None and is_attention else None


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
    way = _way_to_values(context, softmax, through=_FILLING)
    if way is None or not (_is_of_scores(context, softmax) or _is_sum_of_pairs(context, softmax)):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightOnMasked(Rule):
    """Positions that a mask of attention should hide still take part in the softmax.

    What it finds:
        A mask that gives the hidden positions a harmless score: `scores * mask`,
        `masked_fill(mask, 0)` or `masked_fill(mask, 1e-9)` instead of -1e9; and a mask of zeros and
        ones that is added to the scores, by hand or as the `attn_mask` of
        `scaled_dot_product_attention` and of torch's transformer layers.

    Why it matters:
        A score of 0 or 1 is as good as any other: the padding or the future gets weight.

    How it is measured:
        A mask is a constant of zeros and ones, or of truth values, that is smaller than the scores
        and meets their last dimension, that of the softmax. In each row it hides positions at one
        end: those after a token, or the padding. The rule adds up the weights that the softmax
        gives to them. From 0.01 on, as a mean of the rows that hide some, it is a warning. Masks of
        the scores' own shape, which may follow from them, are not judged.

    How to fix it:
        `scores.masked_fill(mask, float("-inf"))` before the softmax; a mask of truth values for
        torch's own attention.

    When it may be wrong:
        If attention is meant to give less than all of its weight.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3: "masking out (setting to
        -inf) all values in the input of the softmax". torch documentation,
        `scaled_dot_product_attention`: a mask of numbers is added to the scores.
    """

    code: ClassVar[str] = "GS123"
    name: ClassVar[str] = "weight-on-masked"
    level: ClassVar[Severity] = "warning"
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line of such a mask."""
        found = dict[int | None, MaskedWeightRecord]()
        for record in context.recording.evidence_of(MaskedWeightRecord):
            found.setdefault(record.site, record)
        for record in found.values():
            other = None if record.softmax == record.site else record.softmax
            yield self.finding(
                context,
                message=_message(record),
                remedy="hide them before the softmax: "
                + (
                    "pass a mask of truth values"
                    if record.weight is None
                    else 'scores.masked_fill(mask, float("-inf"))'
                ),
                site=record.site,
                related=(context.related(other, "the softmax"),),
                evidence={"way": record.way, "weight": record.weight, "filled": record.filled},
            )


def _message(record: MaskedWeightRecord) -> str:
    if record.weight is None:
        return (
            "the mask of attention consists of the numbers 0 and 1, which are added to the "
            "scores: it hides nothing"
        )
    how = {
        "fill": f"gives the hidden positions a score of {literal(record.filled)}",
        "product": "makes the scores of the hidden positions 0",
        "sum": "adds 0 and 1 to the scores",
    }[record.way]
    share = short(100 * record.weight, 2)
    return f"the mask {how}, and the softmax still gives {share} % of its weight to them"
