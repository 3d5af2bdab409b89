"""GS220: divisions of whole numbers that always give 0."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.events import ZeroQuotientEvent, only
from gradscope.recording.evidence.forward import ZeroQuotientRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotientAlwaysZero(Rule):
    """A division of whole numbers rounds all of them down to 0, and the model gets the zeros.

    What it finds:
        `t // steps`, as the input of a network, with every `t` below `steps`.

    Why it matters:
        Nothing fails, but the network never learns what it is told: a diffusion model does not know
        the level of the noise. The layer behind it only trains its bias.

    How it is measured:
        In three captured steps, the numbers that are divided differ, those of a step differ among
        each other, the largest is at least half of the divisor, and all quotients are 0 and become
        floats. No captured step has another quotient at this line. For an inspected model it is a
        warning, and one batch has to do: of at least `least_numbers`, which are not in ascending
        order, as positions are.

    How to fix it:
        Divide by `/`.

    When it may be wrong:
        If larger numbers come later in the training.

    Source:
        Python documentation, "Binary arithmetic operations": `//` rounds down.
    """

    code: ClassVar[str] = "GS220"
    name: ClassVar[str] = "quotient-always-zero"
    level: ClassVar[Severity] = "error"
    explains: ClassVar[tuple[str, ...]] = ("GS204", "GS111", "GS218")
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    least_numbers: int = 16
    """Number of dividends in the batch of an inspected model. Chosen: of fewer, all may be small by
    chance."""
    near: float = 0.5
    """Share of the divisor that the largest reaches, 0 to 1. Chosen: a count of steps below their
    number comes near to it; numbers that are merely small do not."""

    def in_run(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line of a run that divides so."""
        for event in only(ZeroQuotientEvent, context.shared(Windows).events):
            divisor, largest = event.divisor or 0.0, event.largest or 0.0
            context.measured(self.code, "largest", largest, self.near * divisor, site=event.site)
            if largest >= self.near * divisor:
                where = f", in {event.steps} captured steps"
                yield self._finding(
                    context, event.site, event.elements, largest, divisor, where, "error"
                )

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line of an inspected forward that divides so."""
        for one in context.recording.evidence_of(ZeroQuotientRecord):
            limit = self.near * one.divisor
            context.measured(self.code, "largest", one.largest, limit, site=one.site)
            if one.elements >= self.least_numbers and one.largest >= limit:
                yield self._finding(
                    context, one.site, one.elements, one.largest, one.divisor, "", "warning"
                )

    def _finding(
        self,
        context: RuleContext,
        site: int | None,
        elements: int,
        largest: float,
        divisor: float,
        where: str,
        severity: Severity,
    ) -> Finding:
        return self.finding(
            context,
            message=(
                f"a division of whole numbers by {short(divisor)} gives 0 for all {elements:,} of "
                f"them{where}: the largest is {short(largest)}, and `//` rounds down"
            ),
            remedy="divide by `/`",
            site=site,
            severity=severity,
            evidence={
                "divisor": divisor,
                "largest": largest,
                "limit": self.near * divisor,
                "numbers": elements,
            },
            count=elements,
        )
