"""GS717 and GS725: contrastive losses that pair examples with themselves, or one way alone."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import (
    ComparisonRecord,
    ForwardStat,
    OwnSimilarityRecord,
    RepeatedPositiveRecord,
)
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.contrasts import contrasts
from gradscope.rules.helpers.loss.signed_terms import signed_terms
from gradscope.rules.helpers.non_finite.gradient_breaks import forward_stats
from gradscope.rules.needs import Needs, has_forward_values, probe_ran
from gradscope.rules.rule import Lasting, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSimilarityInLoss(Rule):
    """A contrastive loss compares each example with itself, and the right answer is another one.

    What it finds:
        `cross_entropy(z @ z.T / temperature, partners)`, as of SimCLR, without a mask of the
        diagonal. The same by hand: `log(positive / exp(z @ z.T).sum(1))`. Also a cross-entropy of
        `cat([positive, all])`, whose first column is the right answer and is among all others, too.
        Or a loss whose two views are the same one: `cross_entropy(a @ b.T, arange(n))`, where `a`
        and `b` are equal.

    Why it matters:
        Nothing is as similar to an example as itself. No partner can win, so the loss stays high,
        and most of its gradient pushes each example away from itself, which does nothing.

    How it is measured:
        The logits of a cross-entropy are a symmetric matrix, no target is on its diagonal, and at
        least `share` of the rows have their largest number there. A masked diagonal is small. By
        hand: a product or cosine of a tensor with itself is summed over each row, by its
        exponentials, and the sum divides another similarity, or its logarithm is subtracted. Sums
        from which anything is subtracted are not judged, nor are shares that another matrix weighs,
        as in distillation. A right answer counts twice if the first of all logits, the target of
        each row, equals exactly one of the others in every row; this is a warning. So are two equal
        views: the logits are a symmetric matrix of products of outputs, the targets are its
        diagonal, and the loss has no other term.

    How to fix it:
        Mask the diagonal before the loss: `similarity.fill_diagonal_(float("-inf"))`. Give the
        network two views of each example; dropout makes two only in train mode.

    When it may be wrong:
        If the network is to tell examples from themselves.

    Source:
        Chen et al. 2020, "A Simple Framework for Contrastive Learning of Visual Representations"
        (arXiv 2002.05709), equation 1: the sum leaves the example itself out.
    """

    code: ClassVar[str] = "GS717"
    name: ClassVar[str] = "own-similarity-in-loss"
    level: ClassVar[Severity] = "error"
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    share: float = 0.9
    """Share of the rows, 0 to 1, with no larger similarity than that to itself. Chosen: all rows of
    normalised vectors have it, and most of others."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line with such a loss."""
        found = dict[int | None, OwnSimilarityRecord]()
        for record in context.recording.evidence_of(OwnSimilarityRecord):
            if record.is_answer:
                continue
            context.measured_share(
                self.code, "rows_won_by_itself", record.largest, record.rows, self.share
            )
            if record.largest >= self.share * record.rows:
                found.setdefault(record.site, record)
        yield from self._of_equal_views(context)
        twice = {one.site: one for one in context.recording.evidence_of(RepeatedPositiveRecord)}
        for repeated in twice.values():
            yield self._of_repeated(context, repeated)
        for record in found.values():
            yield self.finding(
                context,
                message=(
                    f"the loss compares each of {record.rows} examples with itself: this "
                    f"similarity is the largest in {record.largest} rows, and never the right "
                    "answer"
                ),
                remedy='mask the diagonal: `similarity.fill_diagonal_(float("-inf"))`',
                site=record.site,
                evidence={
                    "rows": record.rows,
                    "rows_won_by_itself": record.largest,
                    "limit": self.share * record.rows,
                },
                count=record.largest,
            )

    def _of_equal_views(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if the whole loss tells examples from others by comparing them alone."""
        found = {
            one.site: one
            for one in context.recording.evidence_of(OwnSimilarityRecord)
            if one.is_answer and one.largest >= self.share * one.rows
        }
        contrasted = {one.record.result.node for one in contrasts(context)} if found else set()
        # Beside another term, it may be a penalty that keeps prototypes or slots apart.
        terms = list(signed_terms(context)) if contrasted else []
        if not terms or any(one.node.index not in contrasted for one in terms):
            return
        for record in found.values():
            yield self.finding(
                context,
                message=(
                    f"the two views of each of {record.rows} examples are equal: the right answer "
                    "is the similarity of an example to itself, and nothing makes views alike"
                ),
                remedy="compute the second side from another view of the examples",
                site=record.site,
                severity="warning",
                evidence={"rows": record.rows, "rows_won_by_itself": record.largest},
                count=record.rows,
            )

    def _of_repeated(self, context: RuleContext, record: RepeatedPositiveRecord) -> Finding:
        return self.finding(
            context,
            message=(
                f"the right answer of each of {record.rows} examples is among the wrong ones, too: "
                "the loss pulls it closer and pushes it away"
            ),
            remedy="leave the positive pairs out of the negatives: mask their diagonal",
            site=record.site,
            severity="warning",
            evidence={"rows": record.rows},
            count=record.rows,
        )


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
