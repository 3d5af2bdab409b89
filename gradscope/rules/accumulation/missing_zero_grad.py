"""GS301: gradients that pile up from step to step."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.kept_steps import steps_of
from gradscope.analysis.windows import Series, Window, Windows
from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.affected_windows import AffectedWindows, Group, by_line
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingZeroGrad(Rule):
    """Backward adds to gradients that an earlier step has already used.

    What it finds:
        Training loops without `zero_grad()`, or where it is called too rarely, such as once per
        epoch, or skips some of the optimizer's parameters.

    Why it matters:
        Each step then follows the sum of all gradients since the first step, most of them computed
        for outdated weights. This acts as a momentum of 1: steps grow, and the loss oscillates and
        diverges, or training is merely worse. No exception is raised.

    How it is measured:
        The rule tracks for each parameter whether a step has used its gradient. A step counts if
        it uses a gradient that was added to one that an earlier step of the same optimizer used.
        Every step except an optimizer's first is judged. The finding is an error if the share of
        such steps is at least `error_share`, a warning if it is at least `warning_share`.
        Gradients in another network that are zeroed before its own step do not count, and several
        backward passes before one step do not either.

    How to fix it:
        Call `optimizer.zero_grad()` once per step: before the first backward of a step, or right
        after the step.

    Fix safety:
        Safe. `optimizer.zero_grad()` is inserted before the first backward of a step, or behind the
        step if a loop or a condition is between them. No edit if the name of the optimizer is not
        on the step's line.

    When it may be wrong:
        If old gradients are meant to accumulate across steps, in place of momentum.

    Source:
        torch documentation, `torch.optim.Optimizer.zero_grad`; pytorch/examples pull request 1424;
        Stack Overflow question 60335387.
    """

    code: ClassVar[str] = "GS301"
    name: ClassVar[str] = "missing-zero-grad"
    level: ClassVar[Severity] = "error"
    fix: ClassVar[FixRule | None] = FixRule(safety="safe", module="fixes.loop")
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS101", "GS103", "GS104", "GS107", "GS108")

    error_share: float = 0.9
    """Share of an optimizer's steps without the first, 0 to 1. Chosen: nearly all steps. With one
    `zero_grad` per epoch the share is above this from eleven steps per epoch."""
    warning_share: float = 0.5
    """Share as above. Chosen: it is 0.5 with `zero_grad` after every second step."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every backward that adds to used gradients."""
        found = [self._affected(context, series) for series in context.shared(Windows).series]
        affected = [one for one in found if one is not None]
        for group in by_line(affected, _last_pass):
            yield self._found(context, group)

    def _affected(self, context: RuleContext, series: Series) -> AffectedWindows | None:
        # The first step cannot reuse anything: no step has used a gradient before.
        judged = series.windows[1:]
        sick = tuple(window for window in judged if window.reuses_gradients)
        context.measured_share(
            self.code,
            "share_of_steps",
            steps_of(sick),
            steps_of(judged),
            self.warning_share,
            subject=series.name,
        )
        if not sick or steps_of(sick) < self.warning_share * steps_of(judged):
            return None
        return AffectedWindows(series=series, windows=sick, judged=steps_of(judged))

    def _found(self, context: RuleContext, group: Group) -> Finding:
        # A single step is too little to call a loop wrong.
        is_error = group.step_count > 1 and group.step_count >= self.error_share * group.judged
        first, last = group.first, group.windows[-1]
        zeros = _zeros(group)
        rarely = "are zeroed too rarely" if zeros else "are never zeroed"
        reuse = f"{group.text} {'reuses' if group.judged == 1 else 'reuse'}"
        return self.finding(
            context,
            message=(
                f"backward() adds to gradients that an earlier step has used: they {rarely}, "
                f"and {reuse} stale gradients"
            ),
            remedy="call zero_grad() once per step, before its first backward()",
            site=group.site,
            related=(
                context.related(first.step.site, "the step that reuses them"),
                context.related(zeros[0] if zeros else None, "they are zeroed here, too rarely"),
            ),
            severity="error" if is_error else "warning",
            parameters=group.parameters,
            evidence={
                "steps_with_old_gradients": group.step_count,
                "steps_judged": group.judged,
                "share_limit": self.error_share if is_error else self.warning_share,
                "passes_in_last_step": last.step.backwards,
            },
            count=group.step_count,
            step=first.step.step,
        )


def _last_pass(window: Window) -> int | None:
    return window.passes[-1].site if window.passes else None


def _zeros(group: Group) -> list[int | None]:
    """Return the lines that zero gradients of these optimizers, and erase something."""
    return [
        event.site
        for one in group.affected
        for window in one.series.windows
        for event in window.zeros(one.series.optimizers)
        # `model.zero_grad()` may concern another network of the same script. An optimizer's zero
        # that erases nothing is not the one that comes too rarely.
        if event.optimizer is not None and event.parameters
    ]
