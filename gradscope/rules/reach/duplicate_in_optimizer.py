"""GS215: parameters that are in an optimizer twice, or in two that both step them."""

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import ClassVar

from gradscope.analysis.kept_steps import steps_of
from gradscope.analysis.windows import Series, Window, Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent, StepEvent, ZeroEvent
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.optimizers import PROBE, Optimizers, positions
from gradscope.rules.rule import Rule

_NEAR = 64
"""Maximum number of events between the steps of two optimizers: schedulers, and steps of others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateInOptimizer(Rule):
    """A parameter is in an optimizer twice, or in two optimizers that both step it.

    What it finds:
        Parameters that one group of an optimizer lists more than once. Over several groups torch
        itself raises. In a training run, also parameters that two optimizers hold and step with the
        same gradient, such as Muon next to `AdamW(model.parameters())`.

    Why it matters:
        Each step updates them twice: twice the learning rate, and twice the momentum's and Adam's
        averages moved on. torch only warns of it.

    How it is measured:
        By identity, in the groups of every known optimizer. Two optimizers count if one steps after
        the other without a backward in between, so that the gradients of shared parameters are
        used twice, in `share` of the second one's steps, and if both learning rates are above zero.
        If the two hold exactly the same parameters, the finding is a warning.

    How to fix it:
        List every parameter once: `model.parameters()` yields tied weights once. Concatenated lists
        contain them several times. Give the second optimizer only the parameters that the first
        does not hold.

    Fix safety:
        Safe. A part whose whole is listed too is left out; otherwise the list becomes
        `list(dict.fromkeys(…))`. If two optimizers hold the parameters of a
        module, the one of the whole model leaves them out. No edit for parameter groups.

    When it may be wrong:
        If the second optimizer does not use the gradient, such as one that only projects or shrinks
        the weights. Optimizers that take turns, each with a backward of its own, and wrappers that
        step another one are not reported.

    Source:
        pytorch issue 40967.
        Measured: SGD with lr 0.1 and gradient 1 moves a parameter that is listed twice by 0.2, and
        so do two such optimizers.
    """

    code: ClassVar[str] = "GS215"
    name: ClassVar[str] = "duplicate-in-optimizer"
    level: ClassVar[Severity] = "error"
    judges_learning: ClassVar[bool] = True
    fix: ClassVar[FixRule | None] = FixRule(safety="safe", module="fixes.optimizers")

    share: float = 0.9
    """Share of an optimizer's steps, 0 to 1. Chosen: nearly all steps."""

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

    def in_run(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every pair of optimizers that use the same gradients."""
        windows = context.shared(Windows)
        for first, second in permutations(windows.series, 2):
            # Either of the two may be the one that steps first.
            shared = sorted(set(first.parameters) & set(second.parameters))
            if not shared:
                continue
            both = [one for one in second.windows if _is_used_before(windows, first, one)]
            context.measured_share(
                self.code,
                "share_of_steps",
                steps_of(both),
                second.step_count,
                self.share,
                subject=f"{first.name} and {second.name}",
            )
            # One shared gradient may be where a script changes its optimizer.
            if steps_of(both) > 1 and steps_of(both) >= self.share * second.step_count:
                yield self._stepped_by_both(context, first, second, shared, steps_of(both))

    def _stepped_by_both(
        self,
        context: RuleContext,
        first: Series,
        second: Series,
        shared: Sequence[int],
        steps: int,
    ) -> Finding:
        where = positions(context, shared)
        more = f" and {len(where) - 3} more" if len(where) > 3 else ""
        is_same = set(first.parameters) == set(second.parameters)
        # The larger one was mostly given all parameters in place of its own.
        larger, other = sorted((first, second), key=lambda one: -len(one.parameters))
        return self.finding(
            context,
            message=(
                f"{', '.join(where[:3])}{more} {'is' if len(where) == 1 else 'are'} in both "
                f"{first.name} and {second.name}: {steps:,} of {second.step_count:,} steps of "
                f"{second.name} use gradients that {first.name} has used"
            ),
            remedy=f"leave them out of {larger.name} or of {other.name}",
            site=None if larger.record is None else larger.record.site,
            related=(
                context.related(
                    None if other.record is None else other.record.site, "the other optimizer"
                ),
                context.related(second.windows[0].step.site, "the second step"),
            ),
            severity="warning" if is_same else "error",
            parameters=shared,
            evidence={
                "parameters_in_both": len(shared),
                "steps_concerned": steps,
                "steps": second.step_count,
                "share_limit": self.share,
            },
            count=len(shared),
            step=second.windows[0].step.step,
        )


def _is_used_before(windows: Windows, first: Series, window: Window) -> bool:
    """Return whether a step uses gradients that another optimizer has used just before."""
    step = window.step
    if not step.stale or not step.lr:
        return False
    for event in reversed(windows.events[max(step.position - _NEAR, 0) : step.position]):
        # A backward in between gives the second step gradients of its own.
        if isinstance(event, BackwardEvent | ZeroEvent):
            return False
        if isinstance(event, StepEvent) and event.optimizer in first.optimizers:
            return bool(event.lr) and event.fresh > 0
    return False
