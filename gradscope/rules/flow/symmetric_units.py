"""GS111: units of a layer that can never differ."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.model_parts import MOST_NAMED
from gradscope.frozen import dataclass
from gradscope.recording.evidence.parameters import SymmetryRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Lasting, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class SymmetricUnits(Rule):
    """Units of a layer have equal weights and equal gradients, and can never differ.

    What it finds:
        Weights that were initialised to a constant: the rows of the layer are copies of each other.

    Why it matters:
        Equal weights with equal gradients stay equal: the layer learns like a single unit, however
        wide it is.

    How it is measured:
        The rule takes the first row of a weight that gets a gradient, and counts the rows that
        equal it in weights and gradient, to a millionth of its norm. A share of `share` is an
        error. If the gradients are zero, all rows count as equal if nothing in the model
        distinguishes them: biases and the columns of the next layer are constant, and so are their
        gradients.

    How to fix it:
        Initialise the weights at random, as `nn.init.kaiming_normal_` does. Constants are for
        biases, gains, and layers followed by random ones.

    When it may be wrong:
        A last layer that starts at zero looks the same under a loss that treats all outputs alike,
        such as their mean.

    Source:
        Goodfellow, Bengio and Courville 2016, section 8.4, on breaking symmetry.
        Measured: constant initialisation gives a share of 1, all of 86 healthy models give 0.
    """

    code: ClassVar[str] = "GS111"
    name: ClassVar[str] = "symmetric-units"
    level: ClassVar[Severity] = "error"
    judges_learning: ClassVar[bool] = True
    lasts: ClassVar[Lasting] = "on"
    explains: ClassVar[tuple[str, ...]] = ("GS110",)
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="share_alike"),)

    share: float = 0.5
    """Share of a weight's rows, 0 to 1. Measured: healthy models have none."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        if context.recording.target.synthetic_loss:
            return "the loss is guessed and may treat all outputs alike"
        return context.probe_skip_reason("symmetry")

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield one finding for all weights whose rows are alike."""
        for record in context.recording.evidence_of(SymmetryRecord):
            context.measured_share(
                self.code,
                "share_alike",
                record.alike,
                record.rows,
                self.share,
                subject=context.recording.parameters[record.parameter].name,
                site=record.site,
            )
        records = [
            record
            for record in context.recording.evidence_of(SymmetryRecord)
            if record.alike >= self.share * record.rows
        ]
        if not records:
            return
        worst = max(records, key=lambda record: (record.alike / record.rows, record.rows))
        share = worst.alike / worst.rows
        names = [context.recording.parameters[record.parameter].name for record in records]
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        sites = [record.site for record in records]
        # The line that fills a weight comes before the one that makes its layer.
        sites += [context.recording.parameters[record.parameter].site for record in records]
        yield self.finding(
            context,
            message=(
                f"{_units(worst)} of {', '.join(names[:MOST_NAMED])}{more} have equal weights and "
                "equal gradients: they learn as one unit"
            ),
            remedy="initialise the weights at random",
            site=next((site for site in sites if site is not None), None),
            parameters=[record.parameter for record in records],
            evidence={"share_alike": share, "limit": self.share, "units": worst.rows},
            count=len(records),
        )


def _units(record: SymmetryRecord) -> str:
    if record.alike == record.rows:
        return f"all {record.rows} units"
    return f"{record.alike} of {record.rows} units"
