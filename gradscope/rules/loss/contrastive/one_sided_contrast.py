"""GS725: symmetric contrastive losses that take one direction twice."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import ComparisonRecord, ForwardStat
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.contrasts import contrasts
from gradscope.rules.helpers.non_finite.gradient_breaks import forward_stats
from gradscope.rules.needs import Needs, has_forward_values, probe_ran
from gradscope.rules.rule import Lasting, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSidedContrast(Rule):
    """A symmetric contrastive loss takes the same direction twice.

    What it finds:
        `cross_entropy(logits, labels) + cross_entropy(logits, labels)` of the similarities of
        images and texts, where the second should get `logits.T`.

    Why it matters:
        Texts never compete for an image. The loss falls as usual, but retrieval in the other
        direction is hardly trained.

    How it is measured:
        Two cross-entropies get the same square matrix of products, both untransposed, and have the
        same value, so that their targets are the same, too. There is no threshold.

    How to fix it:
        Transpose the logits of the second term: `cross_entropy(logits.T, labels)`.

    When it may be wrong:
        If one direction is meant, and the loss is only written twice.

    Source:
        Radford et al. 2021, "Learning Transferable Visual Models From Natural Language Supervision"
        (arXiv 2103.00020), figure 3.
    """

    code: ClassVar[str] = "GS725"
    name: ClassVar[str] = "one-sided-contrast"
    level: ClassVar[Severity] = "warning"
    lasts: ClassVar[Lasting] = "always"
    judges_learning: ClassVar[bool] = True
    needs: ClassVar[Needs] = (has_forward_values, probe_ran("comparisons"))

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every second term that equals a first one."""
        known: dict[tuple[TensorRef | None, float, float], ComparisonRecord] = {}
        stats = context.shared(forward_stats)
        for record, _ in contrasts(context):
            value = stats.get(record.result)
            if value is None:
                continue
            first = known.setdefault(_identity(record, value), record)
            if first.result == record.result:
                continue
            yield self.finding(
                context,
                message=(
                    f"cross_entropy gets the same similarities of {record.left.dims[0]} pairs "
                    "twice: one of the two directions is not trained"
                ),
                remedy="transpose the logits of one of the terms: cross_entropy(logits.T, labels)",
                site=record.site,
                related=(
                    context.related(
                        first.site if first.site != record.site else None, "the first term"
                    ),
                ),
                evidence={"pairs": record.left.dims[0]},
            )
            return


def _identity(
    record: ComparisonRecord, value: ForwardStat
) -> tuple[TensorRef | None, float, float]:
    return record.left_tensor, value.minimum, value.norm
