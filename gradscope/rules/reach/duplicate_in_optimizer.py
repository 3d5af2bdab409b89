"""GS215: parameters that are in an optimizer twice."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.optimizers import PROBE, Optimizers, positions
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateInOptimizer(Rule):
    """A parameter is in an optimizer twice.

    What it finds:
        Parameters that one group of an optimizer lists more than once. Over several groups torch
        itself raises.

    Why it matters:
        Each step updates them twice: twice the learning rate, and twice the momentum's and Adam's
        averages moved on. torch only warns of it.

    How it is measured:
        By identity, in the groups of every known optimizer. There is no threshold.

    How to fix it:
        List every parameter once: `model.parameters()` gives tied weights once, lists that are
        added up give them as often as they are in one.

    When it may be wrong:
        No intended use is known.

    Source:
        pytorch issue 40967.
        Measured: SGD with lr 0.1 and gradient 1 moves a parameter that is listed twice by 0.2.
    """

    code: ClassVar[str] = "GS215"
    name: ClassVar[str] = "duplicate-in-optimizer"
    level: ClassVar[Severity] = "error"
    judges_learning: ClassVar[bool] = True

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        if context.probe_skip_reason(PROBE) is not None:
            return context.probe_skip_reason(PROBE)
        return None if Optimizers(context).records else Optimizers(context).missing

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer that lists something twice."""
        for record in Optimizers(context).records:
            twice = sorted({index for group in record.groups for index in group.duplicates})
            if not twice:
                continue
            where = positions(context, twice)
            more = f" and {len(where) - 3} more" if len(where) > 3 else ""
            is_one = len(where) == 1
            yield self.finding(
                context,
                message=(
                    f"{', '.join(where[:3])}{more} {'is' if is_one else 'are'} in "
                    f"{record.class_name} more than once: each step updates "
                    f"{'it' if is_one else 'them'} repeatedly"
                ),
                remedy="list every parameter once",
                site=record.site,
                parameters=twice,
                evidence={
                    "parameters_listed_twice": len(twice),
                    "parameters_in_optimizer": len(record.parameters),
                },
                count=len(twice),
            )
