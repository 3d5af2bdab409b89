"""GS301: gradients that pile up from step to step."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gradscope.analysis.optimizer_steps import Group, Series, Sighting, Window, Windows, by_line
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingZeroGrad(Rule):
    """Backward adds to gradients that an earlier step has used already.

    What it finds:
        Training loops without `zero_grad()`, or with one that is called too seldom, as once an
        epoch, or that leaves out some of the optimizer's parameters.

    Why it matters:
        Each step then follows the sum of all gradients since the first one, most of them of weights
        that are long gone. It is as a momentum of 1: the steps grow, the loss swings and diverges,
        or training is merely worse than it could be, and nothing raises.

    How it is measured:
        For each parameter it is followed whether a step has used its gradient. A step counts when
        a gradient that it uses was added to one that an earlier step of the same optimizer has
        used. Every step but an optimizer's first is judged; from a share of `error_share` on the
        finding is an error, from `warning_share` on a warning. Gradients that backward leaves in
        another network, and that are zeroed before its own step, do not count; neither do several
        backward passes before one step.

    How to fix it:
        Call `optimizer.zero_grad()` once for each step: before the first backward of a step, or
        right after the step.

    When it may be wrong:
        Where an old gradient is meant to go on in the next steps, in place of momentum.

    Source:
        torch documentation, `torch.optim.Optimizer.zero_grad`; pytorch/examples pull request 1424;
        Stack Overflow question 60335387.
    """

    code: ClassVar[str] = "GS301"
    name: ClassVar[str] = "missing-zero-grad"
    level: ClassVar[Severity] = "error"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS101", "GS103", "GS104", "GS107", "GS108")

    error_share: float = 0.9
    """Share of an optimizer's steps, its first left out. Chosen: nearly all. One `zero_grad` at the
    start of every epoch leaves it above this from eleven steps an epoch on."""
    warning_share: float = 0.5
    """Share as above. Chosen: with `zero_grad` after every second step it is a half."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every backward that adds to what is used."""
        found = [self._sighting(series) for series in context.shared(Windows).series]
        sightings = [one for one in found if one is not None]
        for group in by_line(sightings, _last_pass):
            yield self._found(context, group)

    def _sighting(self, series: Series) -> Sighting | None:
        judged = series.windows[1:]
        sick = tuple(window for window in judged if carries(window))
        if not sick or len(sick) < self.warning_share * len(judged):
            return None
        return Sighting(series=series, windows=sick, judged=len(judged))

    def _found(self, context: RuleContext, group: Group) -> Finding:
        is_error = len(group.windows) > 1 and len(group.windows) >= self.error_share * group.judged
        first, last = group.first, group.windows[-1]
        zeros = _zeros(group)
        rarely = "are zeroed too seldom" if zeros else "are never zeroed"
        return self.finding(
            context,
            message=(
                f"backward() adds to gradients that an earlier step has used: they {rarely}, "
                f"and {group.words} {'uses' if group.judged == 1 else 'use'} old ones again"
            ),
            remedy="call zero_grad() once for each step, before its first backward()",
            site=group.site,
            related=(
                context.related(first.step.site, "the step that uses them again"),
                context.related(zeros[0] if zeros else None, "they are zeroed here, too seldom"),
            ),
            severity="error" if is_error else "warning",
            parameters=group.parameters,
            evidence={
                "steps_with_old_gradients": len(group.windows),
                "steps_judged": group.judged,
                "share_limit": self.error_share if is_error else self.warning_share,
                "passes_in_last_step": last.step.number("backwards"),
            },
            count=len(group.windows),
            step=first.step.step,
        )


def carries(window: Window) -> bool:
    """Return whether a step uses gradients again that an earlier one has used."""
    passes = [event for event in window.events if event.kind == "backward"]
    if window.step.number("backwards") is None:  # weights that the script moves itself
        return any(0 < one.count("reached") == one.count("stale") for one in passes)
    return 0 < len(passes) < window.step.count("backwards")


def _last_pass(window: Window) -> int | None:
    return window.passes[-1].site if window.passes else None


def _zeros(group: Group) -> list[int | None]:
    """Return the lines that zero gradients of these optimizers, and erase something."""
    return [
        event.site
        for one in group.sightings
        for window in one.series.windows
        for event in window.zeros(one.series.optimizers)
        if event.optimizer is not None and event.count("parameters")
    ]
