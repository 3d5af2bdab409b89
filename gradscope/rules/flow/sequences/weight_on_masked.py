"""GS123: masks before a softmax that leave weight on what they should hide."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import literal, short
from gradscope.recording.evidence.batches import MaskedWeightRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Rule


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
