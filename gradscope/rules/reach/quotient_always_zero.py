"""GS220: divisions of whole numbers that always give 0."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gradscope.analysis.windows import Windows
from gradscope.phrasing import short
from gradscope.recording.events import StepEvent, ZeroQuotientEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
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
        floats. No captured step has another quotient at this line.

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
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS204", "GS111")

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        has_step = any(only(StepEvent, context.shared(Windows).events))
        return None if has_step else "no optimizer stepped"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that divides so."""
        for event in only(ZeroQuotientEvent, context.shared(Windows).events):
            divisor, largest = event.divisor or 0.0, event.largest or 0.0
            yield self.finding(
                context,
                message=(
                    f"a division of whole numbers by {short(divisor)} gives 0 for all "
                    f"{event.elements:,} of them, in {event.steps} captured steps: the largest is "
                    f"{short(largest)}, and `//` rounds down"
                ),
                remedy="divide by `/`",
                site=event.site,
                evidence={
                    "divisor": divisor,
                    "largest": largest,
                    "numbers": event.elements,
                    "steps": event.steps,
                },
                count=event.elements,
                step=event.step,
            )
