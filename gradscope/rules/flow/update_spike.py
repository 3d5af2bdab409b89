"""GS116: updates that jump before the loss does."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import hypot, isfinite, nan
from statistics import median
from typing import ClassVar

from gradscope.analysis.recording_index import RecordingIndex
from gradscope.analysis.windows import Series, Window, Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import short, times_text
from gradscope.recording.evidence.training import ArgumentKind
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.norm_table import NormTable, are_unmeasured, measured_in, norms_of
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.spikes import Limits, loss_jumps, robust_deviations
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule

_STAYS = 5
"""Number of losses from the jump on that must stay high."""
_RATED = 1e-12
"""Learning rates below it change nothing."""


@dataclass(frozen=True)
class _Update:
    """A step whose updates were measured."""

    position: int
    """Index among the steps of the optimizer."""
    window: Window
    table: NormTable
    rows: range
    """Rows of the step in the table."""
    own: frozenset[int]
    """The optimizer's parameters; empty if they are unknown."""
    history: int
    """Number of measured steps before it that no missing steps separate from it."""

    @cached_property
    def norms(self) -> dict[int, float]:
        """By parameter: norm of the update over the learning rate."""
        parameters = self.table.parameters[self.rows.start : self.rows.stop]
        rate = self.window.step.lr or 1.0
        return {
            parameter: update / rate
            for parameter, update in zip(parameters, self._measured, strict=True)
            if update >= 0 and (not self.own or parameter in self.own)
        }

    @cached_property
    def norm(self) -> float:
        """Norm of all updates over the learning rate; NaN if none is of the optimizer."""
        parameters = self.table.parameters[self.rows.start : self.rows.stop]
        if not self.own or self.own.issuperset(parameters):  # then without an object per number
            total = hypot(*measured_in(self._measured))
            if isfinite(total):
                return total / (self.window.step.lr or 1.0)
        return hypot(*self.norms.values()) if self.norms else nan

    @property
    def _measured(self) -> Sequence[float]:
        return self.table.updates[self.rows.start : self.rows.stop]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSpike(Rule):
    """An optimizer's update jumps above its usual size, and the loss jumps after it.

    What it finds:
        A step whose update is at least twice the usual one, a few steps before a spike of the loss,
        and the layer whose update grew first.

    Why it matters:
        The gradients of the batch where the loss is high only show the damage. The step that did it
        came before: Adam's running averages had adapted to small gradients, and one layer took
        steps many times too large.

    How it is measured:
        Updates are measured in every tenth step. The norm of all updates over the learning rate
        must be at least `factor` times the median of the `window` measured steps before, and above
        all of them. Within the next `follows` steps, and in none of the `follows` steps before, the
        loss must jump: above all losses of 128 steps, 6 robust standard deviations above their
        median, and half as large again. The median of the five losses from there on must be 3
        deviations above it, and half as large again. The layer that leads is the one whose own
        update reached `factor` first, and of several the one with the largest rise. A spike between
        two measured steps is not seen.

    How to fix it:
        Clip the gradient, lower Adam's `beta2` to 0.95, or use update clipping as in StableAdamW.

    When it may be wrong:
        If new data increases both the update and the loss.

    Source:
        Wortsman et al. 2023 (arXiv 2304.13013), section 3.4: loss spikes follow within 1 to 8 steps
        where the update of the patch embedding is 2.3 times its usual size. Measured: none of 12
        trainings of a policy by rewards with heavy tails and of 12 with Q-learning, one of which
        has an update of 2.1 times the usual one shortly before a high loss that does not last.
    """

    code: ClassVar[str] = "GS116"
    name: ClassVar[str] = "update-spike"
    level: ClassVar[Severity] = "warning"
    argument: ClassVar[ArgumentKind | None] = "learning rate"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS101", "GS103", "GS104", "GS107", "GS108")
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="times_usual"),)

    factor: float = 2.0
    """Multiple of the median update. Source: 2.3 in the experiments named above."""
    window: int = 12
    """Number of measured steps with which an update is compared: about 120 steps. Chosen."""
    least_history: int = 5
    """Number of measured steps before the first judged one. Chosen: the first updates are large."""
    follows: int = 12
    """Number of steps within which the loss jumps. Source: 1 to 8 steps; updates are measured in
    every tenth step.
    """

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        longest = max(map(len, context.shared(_measured_updates)), default=0)
        if longest <= self.least_history:
            return (
                f"updates were measured in {longest} steps, and more than "
                f"{self.least_history} are needed"
            )
        return None

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for the first update of every optimizer that the loss follows."""
        # Only losses are compared here: the limits of norms are not used.
        limits = Limits(
            factor=0.0, beyond=0.0, deviations=6.0, window=128, least_history=20, together=0.0
        )
        every = context.shared(Windows).series
        for series, updates in zip(every, context.shared(_measured_updates), strict=True):
            raised = list(self._raised(context, series, updates))
            jumps = loss_jumps(series.windows, limits) if raised else ()
            found = [
                (i, jump) for i in raised if (jump := self._jump(series.windows, updates[i], jumps))
            ]
            if found:
                index, jump = found[0]
                yield self._finding(context, series, updates, index, jump, len(found))

    def _raised(
        self, context: RuleContext, series: Series, updates: Sequence[_Update]
    ) -> Iterator[int]:
        """Yield the measured steps whose update is large."""
        highest, at = 0.0, 0
        for index in range(self.least_history, len(updates)):
            if updates[index].history < self.least_history:
                continue
            before = [one.norm for one in self._before(updates, index)]
            norm, usual = updates[index].norm, median(before)
            if not usual > 0 or not isfinite(norm):
                continue
            if norm / usual > highest:
                highest, at = norm / usual, index
            if norm >= self.factor * usual and norm > max(before):
                yield index
        if highest:
            window = updates[at].window
            context.measured(
                self.code,
                "times_usual",
                highest,
                self.factor,
                subject=series.name,
                site=window.step.site,
                step=window.step.step,
            )

    def _before(self, updates: Sequence[_Update], index: int) -> Sequence[_Update]:
        """Return the measured steps with which one is compared."""
        return updates[index - min(self.window, updates[index].history) : index]

    def _jump(self, windows: Sequence[Window], update: _Update, jumps: Sequence[int]) -> int | None:
        """Return the step at which the loss follows an update; None if it was first or calm."""
        near = [one for one in jumps if abs(one - update.position) <= self.follows]
        if not near or near[0] <= update.position or not _lasts(windows, near[0]):
            return None
        return near[0]

    def _finding(
        self,
        context: RuleContext,
        series: Series,
        updates: Sequence[_Update],
        index: int,
        jump: int,
        count: int,
    ) -> Finding:
        update, later = updates[index], series.windows[jump]
        usual = median(one.norm for one in self._before(updates, index))
        leaders = self._leaders(updates, index)
        leader = context.recording.parameters[leaders[0]].name if leaders else ""
        loss = later.passes[-1].loss if later.passes else None
        return self.finding(
            context,
            message=(
                f"the update of step {update.window.step.step:,} is "
                f"{times_text(update.norm / usual)} "
                f"the usual one{f', {leader} first' if leader else ''}, and the loss jumps to "
                f"{short(loss, 4)} at step {later.step.step:,}"
            ),
            remedy="clip the gradient, or lower Adam's beta2 to 0.95",
            site=update.window.step.site,
            parameters=leaders,
            evidence={
                "times_usual": update.norm / usual,
                "limit": self.factor,
                "learning_rate": update.window.step.lr,
                "loss": loss,
                "steps_before_loss": jump - update.position,
            },
            count=count,
            step=update.window.step.step,
        )

    def _leaders(self, updates: Sequence[_Update], index: int) -> list[int]:
        """Return the parameters whose own update is large, the first and most raised one first."""
        risen: dict[int, tuple[int, float]] = {}
        # The layer that leads may have been large one measurement before the sum of all was.
        for at in (index - 1, index):
            before = self._before(updates, at)
            for parameter, norm in updates[at].norms.items():
                own = [one.norms[parameter] for one in before if parameter in one.norms]
                usual = median(own) if own else 0.0
                if parameter not in risen and norm >= self.factor * usual > 0:
                    risen[parameter] = at, -norm / usual
        # A layer without an update in this step leads nothing.
        still = [one for one in risen if updates[index].norms.get(one, 0.0) > 0]
        return sorted(still, key=lambda parameter: risen[parameter])


def _lasts(windows: Sequence[Window], jump: int) -> bool:
    """Return whether the loss stays high after a jump, as it does after a bad update.

    A batch of its own kind is over with the next one.
    """
    before = _losses(windows[max(jump - 128, 0) : jump])
    after = _losses(windows[jump : jump + _STAYS])
    if len(after) < _STAYS or not before:
        return False
    typical, usual = median(after), median(before)
    rise = typical - usual
    return robust_deviations(before, typical) > 3.0 and rise > 0.5 * abs(usual)


def _losses(windows: Sequence[Window]) -> list[float]:
    losses = (one.passes[-1].loss for one in windows if one.passes)
    return [loss for loss in losses if loss is not None and isfinite(loss)]


def _measured_updates(context: RecordingIndex) -> tuple[Sequence[_Update], ...]:
    """Return by optimizer the steps whose updates were measured and are finite."""
    norms = norms_of(context.recording)
    return tuple(_updates(norms, series) for series in context.shared(Windows).series)


def _updates(norms: NormTable, series: Series) -> list[_Update]:
    """Return the steps of an optimizer whose updates were measured and are finite."""
    own = frozenset(series.parameters)
    found: list[_Update] = []
    start = 0
    for position, window in enumerate(series.windows):
        if window.resumes:
            start = len(found)
        rate = window.step.lr
        if rate is not None and rate < _RATED:
            continue
        rows = norms.rows_of(window.step.step)
        if are_unmeasured(norms.updates[rows.start : rows.stop]):
            continue  # as in nine steps of ten
        update = _Update(position, window, norms, rows, own, len(found) - start)
        if isfinite(update.norm):
            found.append(update)
    return found
