"""GS107: steps whose gradient is far above the run's own level."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from statistics import median
from typing import ClassVar

from gradscope.recording.finding import Finding, Severity
from gradscope.rules.accumulation.windows import Series, Window, Windows
from gradscope.rules.case import Case
from gradscope.rules.clipping.clips import Clips
from gradscope.rules.measure import Measure
from gradscope.rules.rule import Rule

_NORMAL = 1.4826
"""Standard deviations in a median absolute deviation, of a normal distribution."""
_MOST_PARAMETERS = 8
_BURST = 3
"""Steps apart at most: weights that a spike has driven off have large gradients for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spike:
    """A step whose gradient norm is far above those before it."""

    window: Window
    norm: float
    """Before clips."""
    usual: float
    """The median of the steps before."""
    is_caught: bool
    """Whether a clip kept it from the weights."""

    @property
    def times(self) -> float:
        """How many times the usual norm it is."""
        return self.norm / self.usual


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientSpike(Rule):
    """A step's gradient is many times larger than those of the steps before.

    What it finds:
        Single steps whose global gradient norm is far above the run's own recent level, and the
        parameters that carry it.

    Why it matters:
        One such step undoes many: the weights jump, and the running averages of Adam are spoilt for
        as long as they remember. Often it is the first sign of a run that is going to diverge, or
        of a bad batch.

    How it is measured:
        The norm before clipping, against the median of the optimizer's last `window` steps: above
        `factor` times that, by more than five standard deviations as the median absolute deviation
        tells them, and above the level at which the run began. The first `least_history` steps, and
        as many after the learning rate rises by half at once, are not judged. The finding is a note
        where a clip kept the spikes from the weights, or where they come so often that they are the
        gradient's own nature.

    How to fix it:
        Clip at 1 to 1.5 times the usual norm, look at the batch of that step, and warm the learning
        rate up.

    When it may be wrong:
        Losses that differ much from batch to batch, as in reinforcement learning.

    Source:
        Measured: clips at the median plus three such deviations keep the accuracy with 5 % corrupt
        batches (0.75, and 0.18 without a clip). Chowdhery et al. 2022, "PaLM" (arXiv 2204.02311),
        section 5.1, on spikes of the loss.
    """

    code: ClassVar[str] = "GS107"
    name: ClassVar[str] = "gradient-spike"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="times_usual"),)

    factor: float = 10.0
    """Times the usual norm. Chosen: ten medians are beyond what batches of one kind differ by."""
    deviations: float = 5.0
    """Standard deviations above the usual norm. Chosen: gradient norms have heavy tails."""
    window: int = 100
    """Steps whose median is the usual norm. Chosen."""
    least_history: int = 20
    """Steps before the first one that is judged. Chosen: the first norms fall fast."""
    often: float = 0.05
    """Share of the judged steps, 0 to 1, from which on spikes are no exception. Chosen."""

    def check(self, case: Case) -> Iterator[Finding]:
        """Yield a finding for every optimizer whose steps have spikes."""
        raw = _raw_norms(case)
        for series in case.shared(Windows).series:
            spikes = self._spikes(series.windows, raw)
            reached = [spike for spike in spikes if not spike.is_caught]
            judged = max(len(series.windows) - self.least_history, 1)
            if spikes:
                yield self._finding(case, series, reached or spikes, judged)

    def _finding(self, case: Case, series: Series, spikes: Sequence[Spike], judged: int) -> Finding:
        worst = max(spikes, key=lambda spike: spike.times)
        step = worst.window.step
        bursts = _bursts(spikes)
        is_usual = bursts >= 3 and bursts >= self.often * judged
        is_note = worst.is_caught or is_usual
        backward = worst.window.passes[-1] if worst.window.passes else step
        before, after = _losses_around(series.windows, worst.window)
        return self.finding(
            case,
            message=(
                f"the gradient of step {step.step} has a norm of {worst.norm:.3g}, "
                f"{worst.times:.3g} times that of the steps before it"
                + (", which the clip caught" if worst.is_caught else _loss_words(before, after))
            ),
            remedy=(
                "look at the batch of this step"
                if worst.is_caught
                else f"clip at about {1.5 * worst.usual:.2g}, and look at the batch of this step"
            ),
            site=backward.site,
            severity="note" if is_note else None,
            parameters=_carriers(case, worst.window),
            evidence={
                "norm": worst.norm,
                "usual_norm": worst.usual,
                "times_usual": worst.times,
                "limit": self.factor,
                "loss_before": before,
                "loss_after": after,
                "steps_judged": judged,
            },
            count=len(spikes),
            step=step.step,
        )

    def _spikes(self, windows: Sequence[Window], raw: dict[int, float]) -> list[Spike]:
        """Return the spikes among the steps of an optimizer."""
        norms: deque[float] = deque(maxlen=self.window)
        taken: deque[float] = deque(maxlen=self.window)
        start: list[float] = []
        spikes: list[Spike] = []
        quiet, last_rate = 0, None
        for window in windows:
            seen, rate = window.step.number("norm"), window.step.number("lr")
            if seen is None or not isfinite(seen) or not seen > 0:
                continue
            norm = max(raw.get(window.step.place, 0.0), seen)
            if last_rate and rate and rate > 1.5 * last_rate:
                quiet = self.least_history
            if len(norms) >= self.least_history and not quiet:
                usual = median(norms)
                if self._stands_out(norm, norms) and norm > median(start):
                    is_caught = not self._stands_out(seen, taken)
                    spikes.append(Spike(window=window, norm=norm, usual=usual, is_caught=is_caught))
            quiet, last_rate = max(quiet - 1, 0), rate
            norms.append(norm)
            taken.append(seen)
            start += [norm] if len(start) < self.least_history else []
        return spikes

    def _stands_out(self, norm: float, before: Sequence[float]) -> bool:
        usual = median(before)
        if norm <= self.factor * usual:
            return False
        deviation = _NORMAL * median(abs(one - usual) for one in before)
        return norm > usual + self.deviations * deviation


def _bursts(spikes: Sequence[Spike]) -> int:
    """Return how many spikes there are, those that follow upon another counted as one with it."""
    steps = [spike.window.step.step for spike in spikes]
    return sum(step - before > _BURST for before, step in pairwise([-_BURST - 1, *steps]))


def _raw_norms(case: Case) -> dict[int, float]:
    """Return the norm of a step's gradient before clips, by the step's place in the run.

    It is the largest that a clip function returned of unscaled gradients.
    """
    clips = case.shared(Clips)
    found: dict[int, float] = {}
    for clip in clips.all:
        if clip.norm is None or not isfinite(clip.norm) or clip.event.count("scaled"):
            continue
        for step in clips.steps_of(clip):
            if not any(event.kind == "zero" for event in clip.later):
                found[step.place] = max(found.get(step.place, 0.0), clip.norm)
    return found


def _carriers(case: Case, window: Window) -> list[int]:
    """Return the few parameters that hold nine tenths of a step's squared norm."""
    norms = case.shared(Clips).norms.get(window.step.step, {})
    squares = {index: norm**2 for index, norm in norms.items() if isfinite(norm)}
    left = 0.9 * sum(squares.values())
    found: list[int] = []
    for index in sorted(squares, key=lambda index: -squares[index]):
        if left <= 0 or len(found) == _MOST_PARAMETERS:
            break
        found.append(index)
        left -= squares[index]
    return found


def _losses_around(windows: Sequence[Window], window: Window) -> tuple[float | None, float | None]:
    """Return the typical loss of the five steps before a step, and of the five after it."""
    at = windows.index(window)
    return _typical_loss(windows[max(at - 5, 0) : at]), _typical_loss(windows[at + 1 : at + 6])


def _typical_loss(windows: Sequence[Window]) -> float | None:
    losses = [one.passes[-1].number("loss") for one in windows if one.passes]
    known = [loss for loss in losses if loss is not None]
    return median(known) if known else None


def _loss_words(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return ""
    return f"; the loss goes from {before:.4g} to {after:.4g}"
