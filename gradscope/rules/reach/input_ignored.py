"""GS218: inputs that nothing depends on."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.evidence.batches import IgnoredInputRecord, PaddingRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Rule

_HIDING = ("GS101", "GS102", "GS104", "GS105", "GS106", "GS204")
"""Rules whose mistakes make the loss independent of an input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputIgnored(Rule):
    """An input of the model has no influence on the loss.

    What it finds:
        A parameter that the model's forward requires and never reads, and a tensor of the batch
        whose values have no effect: a mask that is not passed on, a condition that is overwritten,
        or a feature that is multiplied by zero. Besides, padding that is read although the batch
        has a mask for it: the mask is used in one place and not handed on in another.

    Why it matters:
        The model trains without what it is given. Padding takes part in averages and attention, or
        a conditional model does not know its condition.

    How it is measured:
        The rule reads the source of each model's forward for the parameters that it uses. In an
        inspection the forward also runs once for each tensor of the batch, with its numbers rolled
        along the first dimension in which that changes it, and the loss is compared bit by bit. Of
        a tensor that seems to have no effect, numbers are repeated as well, as the order of
        examples may not count. A tensor that such a roll does not change, such as a mask of ones,
        is not judged. It is a note, as data may be given in vain on purpose; a warning for a mask,
        without which padding takes part. Padding is what a mask of zeros and ones, or lengths, mark
        at the start or the end of rows, if the data at three such positions are equal. The forward
        runs with other data in it. If the loss changes, it is a warning where a module is called
        without the mask that its forward could take, else a note: convolutions, for one, reach over
        the edge.

    How to fix it:
        Pass it on to the code that needs it, or remove it from the forward and the batch.

    When it may be wrong:
        If an interface requires a parameter that this model does not need, or if identifiers or
        names are part of the batch.

    Source:
        Karpathy, "A Recipe for Training Neural Networks", "input-independent baseline";
        transformers documentation, "Padding and truncation", `attention_mask`.
        Measured: 4 of 4 such models of the tests, and none of 7 healthy ones.
    """

    code: ClassVar[str] = "GS218"
    name: ClassVar[str] = "input-ignored"
    level: ClassVar[Severity] = "note"
    needs: ClassVar[Needs] = (probe_ran("ignored inputs"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every input without influence."""
        records = context.recording.evidence_of(IgnoredInputRecord)
        unread = [record for record in records if not record.is_measured]
        names = {record.name for record in unread}
        measured = [record for record in records if record.is_measured]
        others = [record for record in measured if _key(record.name) not in names]
        # A tensor without influence may be the one that an unread parameter gets.
        unmatched = len(unread) - (len(measured) - len(others))
        for record in (*unread, *(others if len(others) > unmatched else ())):
            yield self._finding(context, record)
        for padding in context.recording.evidence_of(PaddingRecord):
            yield self._padding(context, padding)

    def _padding(self, context: RuleContext, record: PaddingRecord) -> Finding:
        is_known = record.site is not None
        what = f": {record.argument} is not given to this call" if is_known else ""
        return self.finding(
            context,
            message=(
                f"padding takes part: other numbers where {record.mask} marks padding change the "
                f"loss by {short(record.change, 2)}{what}"
            ),
            remedy=f"pass the mask on as {record.argument}"
            if is_known
            else "keep padded positions out of averages, attention and the loss",
            site=record.site,
            severity="warning" if is_known else "note",
            evidence={"mask": record.mask, "change": record.change, "limit": 0.0},
            cause=record.mask,
        )

    def _finding(self, context: RuleContext, record: IgnoredInputRecord) -> Finding:
        why = (
            "other numbers in it leave the loss as it is"
            if record.is_measured
            else "the forward never reads it"
        )
        return self.finding(
            context,
            message=f"{record.name} has no influence: {why}",
            remedy="pass it on to the code that needs it, or remove it",
            site=record.site,
            severity="warning" if "mask" in record.name.lower() else "note",
            evidence={"input": record.name, "measured": record.is_measured},
            cause=record.name,
            caused_by=_HIDING,
        )


def _key(name: str) -> str:
    """Return the last key of a tensor's name: `mask` of `batch['mask']`."""
    return name.rpartition("[")[2].strip("]'")
