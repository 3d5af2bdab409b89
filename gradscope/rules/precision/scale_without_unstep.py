"""GS605: steps with gradients that still carry a gradient scaler's scale."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.kept_steps import steps_of
from gradscope.analysis.windows import Series, Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import (
    ScalerStepEvent,
    StepEvent,
    UnscaleEvent,
)
from gradscope.recording.evidence.training import ArgumentKind
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.affected_windows import AffectedWindows, Group, by_line
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleWithoutUnstep(Rule):
    """The loss is scaled for half precision, but the optimizer steps without unscaling.

    What it finds:
        `scaler.scale(loss).backward()` followed by `optimizer.step()` in place of
        `scaler.step(optimizer)`.

    Why it matters:
        The gradients are as many times too large as the scale, 65,536 by default. SGD takes steps
        that are larger by this factor. With Adam the factor cancels, but clipping and eps do not
        fit, and steps with infinite gradients are not skipped.

    How it is measured:
        A step counts if a gradient scaler has scaled the loss of every backward that feeds it, if
        neither `scaler.step` nor `scaler.unscale_` came in between, and if the script has not
        written to the gradients. The finding needs `share` of the optimizer's steps, and two. It is
        an error for SGD, and a warning for other optimizers.

    How to fix it:
        `scaler.step(optimizer)` and then `scaler.update()`. Or call `scaler.unscale_(optimizer)`
        before a step of your own.

    When it may be wrong:
        If the optimizer itself divides the gradients by the scale.

    Source:
        torch documentation, "Automatic Mixed Precision examples": `scaler.step` unscales.
        Measured: a scale of 1,024 makes an update of SGD 1,024 times as large, and one of Adam
        1.000 times. None of 40 healthy steps through a scaler counts.
    """

    code: ClassVar[str] = "GS605"
    name: ClassVar[str] = "scale-without-unstep"
    level: ClassVar[Severity] = "error"
    argument: ClassVar[ArgumentKind | None] = "precision"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS103", "GS104", "GS107", "GS108")
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="scale"),)

    share: float = 0.9
    """Share of the optimizer's steps, 0 to 1. Chosen: nearly all steps."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that steps with scaled gradients."""
        windows = context.shared(Windows)
        found = [self._affected(context, windows, series) for series in windows.series]
        affected = [one for one in found if one is not None]
        for group in by_line(affected, lambda window: window.step.site):
            yield self._found(context, group)

    def _affected(
        self, context: RuleContext, windows: Windows, series: Series
    ) -> AffectedWindows | None:
        sick = tuple(
            window
            for window in series.windows
            if window.passes
            and all(one.scaled and one.scale != 1 for one in window.passes)
            and not any(isinstance(event, UnscaleEvent) for event in window.events)
            and not window.step.written
            and not _is_by_scaler(windows, window.step)
        )
        # Repeated steps do not have the scale, but the steps that they repeat have it.
        if not any(one.scale is not None for window in sick for one in window.passes):
            sick = ()
        judged = series.step_count
        if sick:
            share = steps_of(sick) / judged
            site = sick[0].step.site
            context.measured(self.code, "share_scaled", share, self.share, site=site)
        if steps_of(sick) < 2 or steps_of(sick) < self.share * judged:
            return None
        return AffectedWindows(series=series, windows=sick, judged=judged)

    def _found(self, context: RuleContext, group: Group) -> Finding:
        first = group.first
        scales = (one.scale for window in group.windows for one in window.passes)
        scale = next((one for one in scales if one is not None), 1.0)
        is_sgd = any(one.series.family == "sgd" for one in group.affected)
        name = group.affected[0].series.name
        return self.finding(
            context,
            message=(
                f"{group.text} use gradients that are still multiplied by the scaler's scale "
                f"({scale:,.6g}): {name} steps without the scaler"
            ),
            remedy=f"replace this by scaler.step({name}) and scaler.update()",
            site=group.site,
            related=(context.related(first.passes[-1].site, "the loss is scaled here"),),
            severity="error" if is_sgd else "warning",
            parameters=group.parameters,
            evidence={
                "scale": scale,
                "limit": 1.0,
                "steps_concerned": group.step_count,
                "steps": group.judged,
            },
            count=group.step_count,
            step=first.step.step,
        )


def _is_by_scaler(windows: Windows, step: StepEvent) -> bool:
    """Return whether `scaler.step` made a step: both are recorded in sequence."""
    # The scaler's event comes before or after that of the step which it makes.
    around = windows.events[max(step.position - 1, 0) : step.position + 2]
    return any(
        isinstance(one, ScalerStepEvent)
        and (one.optimizer == step.optimizer or one.site == step.site)
        for one in around
    )
