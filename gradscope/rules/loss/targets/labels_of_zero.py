"""GS718: margin losses whose labels are 0 and 1."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import ZeroLabelRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelsOfZero(Rule):
    """A loss of margins expects labels of -1 and 1, and gets 0 and 1.

    What it finds:
        `soft_margin_loss`, `hinge_embedding_loss`, `margin_ranking_loss` or
        `cosine_embedding_loss`, and a hinge by hand, `clamp(1 - labels * scores, min=0)`, with
        labels of 0 and 1.

    Why it matters:
        A label of 0 multiplies the score away: the term of each negative example is a constant and
        trains nothing. The model learns to call everything positive.

    How it is measured:
        All labels are 0 or 1, and both occur. It is a warning for a hinge that is written by hand,
        and an error for a function of torch, which is documented for -1 and 1.

    How to fix it:
        Use `2 * labels - 1`.

    When it may be wrong:
        If a hinge by hand multiplies by a mask.

    Source:
        torch documentation, `SoftMarginLoss`, `HingeEmbeddingLoss`: "containing 1 or -1".
    """

    code: ClassVar[str] = "GS718"
    name: ClassVar[str] = "labels-of-zero"
    level: ClassVar[Severity] = "error"
    explains: ClassVar[tuple[str, ...]] = ("GS204",)
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line with such a loss."""
        found = dict[int | None, ZeroLabelRecord]()
        for record in context.recording.evidence_of(ZeroLabelRecord):
            found.setdefault(record.site, record)
        for record in found.values():
            by_hand = record.operation == "hinge"
            name = "a hinge" if by_hand else record.operation
            yield self.finding(
                context,
                message=(
                    f"{record.zeros} of {record.labels} labels of {name} are 0 and the others 1, "
                    "but it expects -1 and 1: their terms are constants and train nothing"
                ),
                remedy="use `2 * labels - 1`",
                site=record.site,
                severity="warning" if by_hand else "error",
                evidence={
                    "operation": record.operation,
                    "labels": record.labels,
                    "zeros": record.zeros,
                },
                count=record.zeros,
            )
