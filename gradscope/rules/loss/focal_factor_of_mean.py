"""GS723: focal losses whose factor is computed from the mean over the batch."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import ComparisonRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Rule

_ENTROPIES = frozenset(
    {"binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "nll_loss"}
)
_FACTOR = ("Clamp", "Mul", "Neg", "Pow", "Rsub", "Sub")
"""Operations between the probability and the factor."""


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
