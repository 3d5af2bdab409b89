"""GS712, GS723 and GS729: sums and means that are taken too early, too late or over too much."""

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.evidence.forward import ComparisonRecord, PartialNormRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.flow import is_averaged_into_loss
from gradscope.rules.needs import Needs, has_backward, probe_ran
from gradscope.rules.rule import Lasting, Rule

_ADDS = frozenset({"AddBackward0", "SubBackward0"})
_SUMS = ("NansumBackward", "SumBackward")
_WEIGHTS = frozenset({"DivBackward0", "MulBackward0", "NegBackward0", "RsubBackward1"})
_MEANS = ("Mean", "NanmeanBackward")
_LAYERS = ("Addmm", "Baddbmm", "Bmm", "Convolution", "Embedding", "Linear", "Mm", "Mv")
"""Operations of layers, which read data: a penalty on weights has none."""

_ENTROPIES = frozenset(
    {"binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "nll_loss"}
)
_FACTOR = ("Clamp", "Mul", "Neg", "Pow", "Rsub", "Sub")
"""Operations between the probability and the factor."""


class _Total(NamedTuple):
    """A total over the batch, and the operation that adds it to what each example has."""

    sum: NodeRecord
    add: NodeRecord
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalAmongExamples(Rule):
    """A total over the batch is added to the loss of each example, and the mean is taken.

    What it finds:
        One term of a loss that is summed over the batch, too, where the other has one value for
        each example: `(prior + log_determinants.sum()).mean()` in place of `.sum(dim=-1)`.

    Why it matters:
        Broadcasting adds the total to every example, so that the mean holds it whole. The term
        weighs as many times as much as there are examples, and changes with the batch size.

    How it is measured:
        The shapes of both terms of a sum or difference: one is `[N]` or `[N, 1]`, the other is a
        number that a sum of a tensor with a dimension of N makes, alone or with constant factors.
        A layer computed this tensor, so that it is no penalty on weights, and from the sum of both
        to the loss there are a mean and elementwise operations only. There is no threshold.

    How to fix it:
        Sum over the features alone, as by `.sum(dim=-1)`, or divide the total by the number of
        examples.

    When it may be wrong:
        If the tensor has another dimension that is as large as the batch by chance, and the total
        is meant for each example, such as a penalty on the outputs of a layer for a fixed grid.

    Source:
        torch documentation, "Broadcasting semantics". Dinh et al. 2017, "Density estimation using
        Real NVP" (arXiv 1605.08803), equation 3: the log-determinant of each example.
    """

    code: ClassVar[str] = "GS729"
    name: ClassVar[str] = "total-among-examples"
    level: ClassVar[Severity] = "warning"
    lasts: ClassVar[Lasting] = "always"
    needs: ClassVar[Needs] = (has_backward,)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that makes such a total."""
        found = {total.sum.site: total for total in _totals(context)}
        for total in found.values():
            is_elsewhere = total.add.site != total.sum.site
            yield self.finding(
                context,
                message=(
                    f"this total over the batch is added to the loss of each of {total.rows:,} "
                    f"examples: in their mean it weighs {total.rows:,} times as much"
                ),
                remedy="sum over the features alone, as by .sum(dim=-1)",
                site=total.sum.site,
                related=(
                    context.related(total.add.site, "added to each example here")
                    if is_elsewhere
                    else None,
                ),
                parameters=sorted(context.parameters_behind([total.sum.index])),
                evidence={"examples": total.rows},
                count=total.rows,
            )


def _totals(context: RuleContext) -> Iterator[_Total]:
    nodes = context.recording.nodes
    for node in context.first.nodes:
        operands = [nodes[ref.node] for ref in context.successors.get(node.index, ())]
        # A summand without an edge is data, whose total trains nothing.
        if node.operation not in _ADDS or len(operands) != 2:
            continue
        for number, other in (operands, operands[::-1]):
            rows = _rows(other)
            total = _sum_behind(context, number) if number.dims() == () and rows > 1 else None
            if (
                total is not None
                and rows in _summed(context, total)
                and _reads_data(context, total)
                and _is_in_mean(context, node)
            ):
                yield _Total(total, node, rows)


def _rows(node: NodeRecord) -> int:
    """Return the length of `[N]` or `[N, 1]`, 0 for another shape."""
    dims = node.dims() or ()
    return dims[0] if len(dims) == 1 or (len(dims) == 2 and dims[1] == 1) else 0


def _sum_behind(context: RuleContext, node: NodeRecord) -> NodeRecord | None:
    """Return the sum that makes a number, alone or with constant factors."""
    while not node.operation.startswith(_SUMS):
        inputs = context.successors.get(node.index, ())
        # A constant factor has no edge.
        if len(inputs) != 1 or not (node.kind == "view" or node.operation in _WEIGHTS):
            return None
        node = context.recording.nodes[inputs[0].node]
    return node


def _summed(context: RuleContext, total: NodeRecord) -> tuple[int, ...]:
    """Return the dimensions of what is summed up."""
    (given, *_) = context.successors.get(total.index, ()) or (None,)
    shape = None if given is None else context.recording.nodes[given.node].outputs[given.slot]
    return () if shape is None else shape.dims


def _reads_data(context: RuleContext, total: NodeRecord) -> bool:
    return any(node.operation.startswith(_LAYERS) for node in context.behind([total.index]))


def _is_in_mean(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether the next reduction of a sum of terms is a mean, on the way to the loss."""
    waiting = [node.index]
    while waiting:
        for user in context.users.get(waiting.pop(0), ()):
            record = context.recording.nodes[user]
            if record.operation.startswith(_MEANS):
                return is_averaged_into_loss(context, node.index)
            if not record.operation.startswith(_SUMS) and record.dims() == node.dims():
                waiting.append(user)
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class FocalFactorOfMean(Rule):
    """The factor of a focal loss is computed from the mean loss, and weighs no example.

    What it finds:
        `ce = cross_entropy(logits, target)`, `p = exp(-ce)` and `(1 - p) ** gamma * ce`, where `ce`
        is already the mean over the batch. Also with a binary cross-entropy.

    Why it matters:
        A focal loss weighs each example by how hard it is. A factor of the mean is one number for
        all examples: it only changes the learning rate, and easy examples still outweigh the rest.

    How it is measured:
        A loss function of classes has averaged its examples. The exponential of its negative goes
        into a product with the same mean, through differences, powers and constant factors. There
        is no threshold.

    How to fix it:
        Pass `reduction="none"` to the loss function, and average the product.

    When it may be wrong:
        If the batch as a whole is to get a weight, or if the function is called for one example.

    Source:
        Lin et al. 2017, "Focal Loss for Dense Object Detection" (arXiv 1708.02002), equation 4.
    """

    code: ClassVar[str] = "GS723"
    name: ClassVar[str] = "focal-factor-of-mean"
    level: ClassVar[Severity] = "warning"
    judges_learning: ClassVar[bool] = True
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every mean that is multiplied by a factor of its own."""
        found = dict[int | None, tuple[ComparisonRecord, NodeRecord]]()
        for record in context.recording.evidence_of(ComparisonRecord):
            rows = record.right.dims
            is_mean = record.operation in _ENTROPIES and record.reduction == "mean"
            # The mean over one example is its own loss, and its factor is right.
            if is_mean and rows and rows[0] > 1 and record.site not in found:
                product = _focal_product(context, record.result.node)
                if product is not None:
                    found[record.site] = (record, product)
        for record, product in found.values():
            yield self.finding(
                context,
                message=(
                    f"the focal factor is one number for all examples: {record.operation} has "
                    "averaged them before"
                ),
                remedy=f'{record.operation}(…, reduction="none"), and the mean of the product',
                site=record.site,
                related=(
                    context.related(
                        product.site if product.site != record.site else None, "the product"
                    ),
                ),
                evidence={"operation": record.operation},
            )


def _focal_product(context: RuleContext, mean: int) -> NodeRecord | None:
    """Return the product of a mean and a factor that is made of its exponential."""
    # A constant such as `alpha` may multiply the mean before the factor does.
    own = {mean, *_onwards(context, mean, ("Mul",))}
    probabilities = [
        user
        for negative in _onwards(context, mean, ("Neg",))
        for user in context.users.get(negative, ())
        if context.recording.nodes[user].operation == "ExpBackward0"
    ]
    for probability in probabilities:
        factors = {probability, *_onwards(context, probability, _FACTOR)}
        for node in sorted(factors):
            inputs = context.inputs(node)
            # A factor without a gradient leaves a product of one input, which does not tell what
            # made the factor.
            is_product = context.recording.nodes[node].operation == "MulBackward0"
            if is_product and len(inputs) == 2 and own & set(inputs) and factors & set(inputs):
                return context.recording.nodes[node]
    return None


def _onwards(context: RuleContext, node: int, operations: tuple[str, ...]) -> set[int]:
    """Return what such operations alone compute from a tensor, or from what they computed."""
    waiting, found = [node], set[int]()
    while waiting:
        for user in context.users.get(waiting.pop(), ()):
            if user not in found and context.recording.nodes[user].operation.startswith(operations):
                found.add(user)
                waiting.append(user)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PenaltyOfParts(Rule):
    """A gradient penalty takes norms over a part of each example's gradient.

    What it finds:
        A penalty such as `((gradient.norm(2, dim=1) - 1) ** 2).mean()` on the gradient of a critic
        with respect to images or sequences: the norm is over the channels, one per pixel, and not
        over all elements of an example.

    Why it matters:
        Every pixel's gradient is pushed towards a norm of 1. The norm of the whole gradient is then
        the square root of the number of pixels, where it should be 1, and the critic is not
        1-Lipschitz.

    How it is measured:
        The result of an `autograd.grad` with `create_graph`, of one number per example, is followed
        to its norm, or to the root of a sum of squares, and to a difference from a number other
        than 0. It is found if there are more norms than examples.

    How to fix it:
        `gradient.flatten(1).norm(2, dim=1)`.

    When it may be wrong:
        If each position is meant to have a gradient of this norm. The rule skips outputs with
        several numbers per example, such as a distance field at many points.

    Source:
        Gulrajani et al. 2017, "Improved Training of Wasserstein GANs" (arXiv 1704.00028), equation
        3: the norm of the gradient with respect to the whole example.
    """

    code: ClassVar[str] = "GS712"
    name: ClassVar[str] = "penalty-of-parts"
    level: ClassVar[Severity] = "warning"
    needs: ClassVar[Needs] = (probe_ran("derivatives"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line with such a penalty."""
        by_line = {one.site: one for one in context.recording.evidence_of(PartialNormRecord)}
        for site, one in by_line.items():
            parts = one.norms // one.examples
            yield self.finding(
                context,
                message=(
                    f"the gradient penalty takes {parts:,} norms per example, of a gradient of "
                    f"shape {list(one.shape)}: at its minimum the whole gradient has a norm of "
                    f"{short(parts**0.5)} times the limit"
                ),
                remedy="take the norm over all elements of an example: gradient.flatten(1).norm(2, "
                "dim=1)",
                site=site,
                evidence={"norms_per_example": parts, "limit": 1},
                count=parts,
            )
