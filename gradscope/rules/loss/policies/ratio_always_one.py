"""GS716: ratios of new and old probabilities that are always 1."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import UnitRatioEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, has_step
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioAlwaysOne(Rule):
    """The ratio of new and old probabilities is always 1, although the same data train again.

    What it finds:
        A loss of PPO whose old log-probabilities are computed again before each step, and so are
        those of the current policy.

    Why it matters:
        The clip of the ratio never acts: nothing holds the policy near the one that has made the
        data. Repeated steps on the same data move it as far as they like, and training becomes
        unstable.

    How it is measured:
        In captured steps, the exponential of a difference is 1 in each element. What is subtracted
        was computed without gradient, and not detached from the other. The exponential is clamped,
        and multiplied by a tensor such as the advantages, of at least eight different numbers. In
        two steps at least half of these numbers are those of earlier captured steps: the same data
        train again. Of numbers that are normalised in each step, those before count, if nearly all
        of them differ. No captured step has another ratio at this line. Steps that train on new
        data each have a ratio of 1 for good reason.

    How to fix it:
        Store the log-probabilities when the data are made, and use these in all epochs.

    When it may be wrong:
        If another optimizer makes the steps in between and the policy does not move.

    Source:
        Schulman et al. 2017, "Proximal Policy Optimization Algorithms" (arXiv 1707.06347), section
        3: the old parameters are those before the update.
    """

    code: ClassVar[str] = "GS716"
    name: ClassVar[str] = "ratio-always-one"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    needs: ClassVar[Needs] = (has_step,)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line with such a ratio."""
        for event in only(UnitRatioEvent, context.shared(Windows).events):
            yield self.finding(
                context,
                message=(
                    "the ratio of new and old probabilities is 1 in every captured step, although "
                    f"{event.reuses} of them train on data of an earlier one: the old ones are of "
                    "the current policy, and a clip of the ratio never acts"
                ),
                remedy="store the log-probabilities when the data are made, and use them in all "
                "epochs",
                site=event.site,
                evidence={"ratios": event.elements, "steps_on_known_data": event.reuses},
                count=event.elements,
                step=event.step,
            )
