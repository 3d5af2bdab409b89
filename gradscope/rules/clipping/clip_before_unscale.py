"""GS403: a clip of gradients that are still multiplied by the loss scale."""

from collections.abc import Iterator, Sequence
from math import isfinite
from statistics import median
from typing import ClassVar

from gradscope.analysis.clipping.clips import Clip, Clips
from gradscope.analysis.kept_steps import steps_of
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.clips import LossScale
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipBeforeUnscale(Rule):
    """Gradients are clipped while they are still multiplied by the loss scale.

    What it finds:
        A call of a clip function between `scaler.scale(loss).backward()` and the unscaling, which
        happens in `scaler.step(optimizer)` at the latest.

    Why it matters:
        The limit is compared with gradients that are about 65,536 times too large. Nearly every
        step is clipped to the limit divided by the scale: training almost stops, and its speed
        changes with the scale.

    How it is measured:
        The rule checks whether the backward that made the gradients began at a scaled loss, and no
        `unscale_` followed. The finding is an error if one of these calls exceeds its limit,
        otherwise a warning.

    How to fix it:
        `scaler.unscale_(optimizer)` before the clip; `scaler.step(optimizer)` then leaves the
        gradients as they are.

    Fix safety:
        Safe. `scaler.unscale_(optimizer)` is inserted before the clip, with the names of the only
        `scaler.step(optimizer)` behind it: in its block, behind the condition around it, or behind
        the only call of a function that does nothing but clip.

    When it may be wrong:
        If the limit is multiplied by the scale. The rule does not report limits that move with the
        scale, or are of its size.

    Source:
        torch documentation, "Automatic Mixed Precision examples", working with unscaled gradients.
    """

    code: ClassVar[str] = "GS403"
    name: ClassVar[str] = "clip-before-unscale"
    level: ClassVar[Severity] = "error"
    fix: ClassVar[FixRule | None] = FixRule(safety="safe", reveals=("GS405",))
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS109",)

    share: float = 0.9
    """Share of the calls on a line that must get scaled gradients, 0 to 1. Chosen: a few steps are
    no mistake of the loop."""
    least_scale: float = 4.0
    """Loss scale below which a limit that ignores it is harmless. Chosen."""
    own_scale: float = 0.05
    """A limit of at least this share of the scale, if it is 1,024 or more, counts as multiplied by
    the scale. Chosen: usual limits are 0.1 to 10.
    """

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that clips scaled gradients."""
        scales = context.shared(LossScale)
        for calls in context.shared(Clips).by_line:
            found = [clip for clip in calls if clip.event.scaled]
            context.measured_share(
                self.code,
                "share_of_calls",
                steps_of(found),
                steps_of(calls),
                self.share,
                subject=calls[0].text,
                site=calls[0].event.site,
            )
            if not found or steps_of(found) < self.share * steps_of(calls):
                continue
            scale = max((s for clip in found if (s := scales.at(clip.event))), default=None)
            if scale is not None and (scale < self.least_scale or self._knows(scales, found)):
                continue
            yield self._finding(context, found, steps_of(calls), scale)

    def _finding(
        self, context: RuleContext, found: Sequence[Clip], calls: int, scale: float | None
    ) -> Finding:
        first = found[0]
        norms = [clip.norm for clip in found if clip.norm is not None and isfinite(clip.norm)]
        size = "" if scale is None or first.limit is None else _size(first.limit, scale)
        return self.finding(
            context,
            message=f"{first.text} clips gradients that are still multiplied by the loss scale"
            + size,
            remedy="call scaler.unscale_(optimizer) before the clip",
            site=first.event.site,
            severity="error" if any(clip.cuts is not False for clip in found) else "warning",
            evidence={
                "scaled_calls": steps_of(found),
                "calls": calls,
                "limit": first.limit,
                "scale": scale,
                "typical_scaled_norm": median(norms) if norms else None,
            },
            count=steps_of(found),
            step=first.event.step,
        )

    def _knows(self, scales: LossScale, calls: Sequence[Clip]) -> bool:
        """Return whether the limit was multiplied by the scale."""
        ratios = {
            clip.limit / scale for clip in calls if clip.limit and (scale := scales.at(clip.event))
        }
        limits = {clip.limit for clip in calls}
        # A limit that is multiplied by `scaler.get_scale()` follows each change of the scale; a
        # fixed one does not.
        if len(limits) > 1 and ratios and max(ratios) <= 1.01 * min(ratios):
            return True
        known = [scale for clip in calls if (scale := scales.at(clip.event))]
        # While the scale never changes, only the size of the limit tells. At small scales, a usual
        # limit is a large share of the scale.
        return bool(ratios) and min(ratios) >= self.own_scale and min(known) >= 1024


def _size(limit: float, scale: float) -> str:
    return f" ({short(scale, 6)}): the limit is {short(limit / scale)} for the step's gradients"
