"""GS107: steps whose gradient is far above the run's own level."""

from collections.abc import Iterator, Sequence
from math import isfinite
from statistics import median
from typing import ClassVar

from gradscope.analysis.clipping.clips import Clips
from gradscope.analysis.windows import Series, Window, Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import short, times_text
from gradscope.recording.events import BackwardEvent, EpochEvent, ZeroEvent
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.spikes import (
    History,
    Limits,
    Spike,
    occurrences,
    spikes_of,
    unmeasured_jump,
)
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule

_MOST_PARAMETERS = 8
_MOST_LEADERS = 3
_LEADS = 3.0
"""Multiple of the typical parameter's rise above which a parameter leads."""
_OWN_STEPS = 20
"""Number of steps with which a parameter's norm is compared to see whether it leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientSpike(Rule):
    """A step's gradient is many times larger than those of the steps before.

    What it finds:
        Single steps whose global gradient norm is far above the run's own recent level, and the
        parameters that carry it.

    Why it matters:
        One such step undoes many: the weights jump, and Adam's running averages stay wrong until
        they have forgotten it. Often it is the first sign of a run that will diverge, or of a bad
        batch.

    How it is measured:
        The norm before clipping is compared with the optimizer's last `window` steps. It must be
        above `factor` times their median, above `beyond` times their maximum, and an outlier by
        `deviations` on the logarithmic scale. If the loss jumps at this step or in the next five,
        `together` times the median is enough. A loss jumps if it is above all losses of the window,
        an outlier by `deviations`, and half as large again as their median. The norm must also
        exceed all of the run's first norms, or the loss must be higher after the step than before.
        The first `least_history` steps are not judged, nor as many after the learning rate jumps by
        half. If the norm of a step was not measured, its loss is judged: it must be above the
        square of `factor` times all losses before it, and the next five ten times lower. The
        finding is a note if a clip kept the spike from the weights, or if steps that large are
        frequent. In a long run the most that its summaries allow is taken. Parameters lead whose
        gradient has risen three times as much as that of the typical parameter, against their own
        last 20 steps. The batch's number in its epoch is known for a `DataLoader`.

    How to fix it:
        Clip at 1 to 1.5 times the usual norm, look at the batch of that step, and warm the learning
        rate up.

    When it may be wrong:
        Losses that differ much from batch to batch, as in reinforcement learning.

    Source:
        OLMo-core skips steps whose loss or norm is 6 standard deviations above the last 128;
        Megatron reports norms above 10 times the usual. Measured: clips at the median plus three
        such deviations keep the accuracy with 5 % corrupt batches (0.75, and 0.18 without a clip).
        Over 240 runs of noise without a fault, 2 have a warning, both of Student's t with 3 degrees
        of freedom. Chowdhery et al. 2022, "PaLM" (arXiv 2204.02311), section 5.1, on spikes of the
        loss.
    """

    code: ClassVar[str] = "GS107"
    name: ClassVar[str] = "gradient-spike"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="times_usual"),)

    factor: float = 10.0
    """Multiple of the median norm. Chosen: batches of one kind differ by less than ten medians."""
    beyond: float = 2.0
    """Multiple of the largest norm. Chosen: an earlier norm of the same size was no accident."""
    together: float = 4.0
    """Multiple of the median norm if the loss jumps too. Chosen: two signs need less of each."""
    deviations: float = 6.0
    """Standard deviations of the norm's logarithm above its median, estimated by the median
    absolute deviation. Source: OLMo-core; on the logarithmic scale, because norms have heavy tails.
    """
    window: int = 128
    """Number of steps with which a norm is compared. Source: OLMo-core."""
    least_history: int = 20
    """Number of steps before the first judged one. Chosen: the first norms fall quickly."""
    loss_rise: float = 0.05
    """Rise of the loss after the step, relative to the loss at the start. Chosen."""
    often: float = 0.02
    """Share of the judged steps, 0 to 1, above which spikes are no exception. Chosen."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer whose steps have spikes."""
        raw = _raw_norms(context)
        limits = Limits(
            factor=self.factor,
            beyond=self.beyond,
            deviations=self.deviations,
            window=self.window,
            least_history=self.least_history,
            together=self.together,
        )

        def norm_of(window: Window) -> float:
            return raw.get(window.step.position, 0.0)

        for series in context.shared(Windows).series:
            windows = series.windows
            history = History(limits)
            found = spikes_of(windows, norm_of, history)
            if history.highest:
                context.measured(
                    self.code,
                    "times_largest_before",
                    history.highest,
                    self.beyond,
                    subject=series.name,
                )
            spikes = [one for one in found if one.is_new or self._harms(windows, one)]
            if not spikes:
                yield from self._of_loss(context, windows, limits)
                continue
            reached = [one for one in spikes if not one.is_caught]
            worst = max(reached or spikes, key=lambda one: one.times)
            kept = context.shared(Windows).kept
            times = occurrences(worst, series, kept, norm_of)
            judged = max(series.step_count - self.least_history, 1)
            # Two spikes are too few for a share.
            is_usual = times >= 3 and times >= self.often * judged
            most = times if kept.missing else None
            yield self._finding(
                context, series, worst, is_usual=is_usual, count=len(spikes), most=most
            )

    def _of_loss(
        self, context: RuleContext, windows: Sequence[Window], limits: Limits
    ) -> Iterator[Finding]:
        """Yield the finding for a loss that jumps at a step whose gradient was not measured."""
        found = unmeasured_jump(windows, limits)
        if found is None:
            return
        position, times = found
        window = windows[position]
        batch = _batch(context, window)
        of_step = "the batch of this step" if batch is None else f"batch {batch} of this epoch"
        yield self.finding(
            context,
            message=(
                f"the loss of step {window.step.step:,} is {short(window.passes[-1].loss)}, "
                f"{times_text(times)} the largest before it, and comes down again; its gradient "
                f"was not measured"
            ),
            remedy=f"check {of_step}, and clip the gradients",
            site=window.passes[-1].site,
            evidence={
                "loss": window.passes[-1].loss,
                "times_largest_before": times,
                "limit": self.factor**2,
                "batch": batch,
            },
            step=window.step.step,
        )

    def _harms(self, windows: Sequence[Window], spike: Spike) -> bool:
        """Return whether the loss is higher after a spike, by a share of its first value."""
        before, after = _losses_around(windows, spike.position)
        start = _typical_loss(windows[: self.least_history])
        if before is None or after is None or start is None:
            return False
        return after - before > self.loss_rise * abs(start)

    def _finding(
        self,
        context: RuleContext,
        series: Series,
        spike: Spike,
        *,
        is_usual: bool,
        count: int,
        most: int | None,
    ) -> Finding:
        window = series.windows[spike.position]
        # Gradients may come from elsewhere than a backward, as from an assignment.
        backward = window.passes[-1] if window.passes else window.step
        before, after = _losses_around(series.windows, spike.position)
        leaders = _leaders(context, series.windows, spike.position)
        batch = _batch(context, window)
        of_step = "the batch of this step" if batch is None else f"batch {batch} of this epoch"
        return self.finding(
            context,
            message=(
                f"the gradient of step {window.step.step:,} has a norm of {short(spike.norm)}, "
                f"{times_text(spike.times)} that of the steps before it"
                + _leader_text(context, leaders)
                + (", but was clipped" if spike.is_caught else _loss_text(before, after))
            ),
            remedy=(
                f"check {of_step}"
                if spike.is_caught
                else f"clip at about {short(1.5 * spike.usual, 2)}, and check {of_step}"
            ),
            site=backward.site,
            severity="note" if spike.is_caught or is_usual else None,
            parameters=[*leaders, *_carriers(context, window)],
            evidence={
                "norm": spike.norm,
                "usual_norm": spike.usual,
                "times_usual": spike.times,
                "limit": self.factor if spike.times > self.factor else self.together,
                "deviations": spike.deviations,
                "batch": batch,
                "loss_before": before,
                "loss_after": after,
                **({} if most is None else {"large_steps_at_most": most}),
            },
            count=count,
            step=window.step.step,
        )


def _raw_norms(context: RuleContext) -> dict[int, float]:
    """Return the norm of a step's gradient before clips, by the step's index in the run.

    It is the largest that a clip function found of unscaled gradients.
    """
    clips = context.shared(Clips)
    found: dict[int, float] = {}
    for clip in clips.all:
        norm = clip.norm_before
        # A loss scale multiplies the norm, and changes between steps.
        if norm is None or not isfinite(norm) or clip.event.scaled:
            continue
        for step in clip.steps:
            # The step uses other gradients than those that were cleared after the clip.
            if not any(isinstance(event, ZeroEvent) for event in clip.later):
                found[step.position] = max(found.get(step.position, 0.0), norm)
    return found


def _carriers(context: RuleContext, window: Window) -> list[int]:
    """Return the few parameters that hold nine tenths of a step's squared norm."""
    norms = context.shared(Clips).norms_in(window.step.step)
    squares = {index: norm**2 for index, norm in norms.items() if isfinite(norm)}
    left = 0.9 * sum(squares.values())
    found: list[int] = []
    for index in sorted(squares, key=lambda index: -squares[index]):
        if left <= 0 or len(found) == _MOST_PARAMETERS:
            break
        found.append(index)
        left -= squares[index]
    return found


def _leaders(context: RuleContext, windows: Sequence[Window], position: int) -> list[int]:
    """Return at most three parameters whose gradients exceed their own history most.

    None lead where all stand out alike.
    """
    clips = context.shared(Clips)
    usual: dict[int, list[float]] = {}
    for window in windows[max(position - _OWN_STEPS, 0) : position]:
        for index, norm in clips.norms_in(window.step.step).items():
            usual.setdefault(index, []).append(norm)
    times = {
        index: norm / typical
        for index, norm in clips.norms_in(windows[position].step.step).items()
        if isfinite(norm) and (typical := median(usual.get(index, [0.0]))) > 0
    }
    if not times or max(times.values()) < _LEADS * median(times.values()):
        return []
    leading = [index for index in times if times[index] >= _LEADS * median(times.values())]
    return sorted(leading, key=lambda index: -times[index])[:_MOST_LEADERS]


def _leader_text(context: RuleContext, leaders: Sequence[int]) -> str:
    names = [context.recording.parameters[index].name for index in leaders]
    return f", led by {' and '.join(names)}" if names else ""


def _batch(context: RuleContext, window: Window) -> int | None:
    """Return the number of the step's last batch in its epoch, from 0; None without an epoch."""
    if not window.passes:
        return None
    events = context.shared(Windows).events
    batch = 0
    for event in reversed(events[: window.passes[-1].position]):
        if isinstance(event, EpochEvent):
            # More backwards than batches: several belong to one batch, and their number tells
            # nothing.
            return batch if event.batches is not None and batch < event.batches else None
        batch += isinstance(event, BackwardEvent)
    return None


def _losses_around(windows: Sequence[Window], position: int) -> tuple[float | None, float | None]:
    """Return the typical loss of the five steps before a step, and of the five after it."""
    return (
        _typical_loss(windows[max(position - 5, 0) : position]),
        _typical_loss(windows[position + 1 : position + 6]),
    )


def _typical_loss(windows: Sequence[Window]) -> float | None:
    losses = [one.passes[-1].loss for one in windows if one.passes]
    known = [loss for loss in losses if loss is not None]
    return median(known) if known else None


def _loss_text(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return ""
    return f"; the loss goes from {short(before, 4)} to {short(after, 4)}"
