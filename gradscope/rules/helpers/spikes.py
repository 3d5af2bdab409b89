"""Steps of a run whose gradient norm exceeds those before."""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from math import ceil, inf, isfinite, log
from statistics import median

from gradscope.analysis.kept_steps import KeptSteps
from gradscope.analysis.windows import Series, Window
from gradscope.frozen import dataclass
from gradscope.recording.thinning.buckets import Bucket

_NORMAL = 1.4826
"""Number of standard deviations of a normal distribution in one median absolute deviation."""
_BURST = 3
"""Maximum distance in steps between spikes of one burst: weights that a spike has changed have
large gradients for a while.
"""
_FOLLOWS = 5
"""Number of steps after a gradient within which it can make the loss jump."""
_LEAST_JUMP = 0.5
"""Minimum rise of a jump, as a share of the usual loss: a loss that hardly varies does not jump."""
_LEAST_LOSS = 1e-6
"""Losses below it have converged, and are no measure."""
_COMPARABLE = 0.3
"""Share of a spike's norm above which another step's norm counts as equally large."""
_STEEP = 1.5
"""Multiple of the previous learning rate: such a rise takes some steps to settle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a spike; the fields are those of the rule."""

    factor: float
    beyond: float
    deviations: float
    window: int
    least_history: int
    together: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spike:
    """A step whose gradient norm is far above those before it."""

    position: int
    """Index among the steps of the optimizer."""
    norm: float
    """Gradient norm before clips."""
    usual: float
    """Median norm of the steps before."""
    is_caught: bool
    """Whether a clip limited it."""
    is_new: bool
    """Whether it exceeds all norms of the run's first steps."""
    deviations: float
    """Number of robust standard deviations of the norm's logarithm above its median."""

    @property
    def times(self) -> float:
        """Ratio to the usual norm."""
        return self.norm / self.usual


class History:
    """The steps of one optimizer, judged in order."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._norms: deque[float] = deque(maxlen=limits.window)
        self._taken: deque[float] = deque(maxlen=limits.window)
        self._start: list[float] = []
        self._quiet = 0
        self.highest = 0.0
        """Largest ratio of a norm to the largest of the window before it."""
        self._rate: float | None = None

    def resume(self) -> None:
        """Forget the last steps: those that come now did not follow them."""
        self._norms.clear()
        self._taken.clear()
        self._rate = None

    def judge(
        self,
        position: int,
        norm: float,
        taken: float,
        rate: float | None,
        *,
        loss_jumps: bool = False,
    ) -> Spike | None:
        """Take in a step, and return it if it is a spike.

        Args:
            position: Of the step.
            norm: Of its gradient, before clips.
            taken: What clips have left of it.
            rate: The learning rate.
            loss_jumps: Whether the loss jumps at this step or right after it.
        """
        if self._rate and rate and rate > _STEEP * self._rate:
            # A warm restart or a new stage raises the rate at once, and norms settle at another
            # level.
            self._quiet = self.limits.least_history
        spike = None
        if len(self._norms) >= self.limits.least_history and not self._quiet:
            spike = self._spike(position, norm, taken, loss_jumps=loss_jumps)
        self._quiet, self._rate = max(self._quiet - 1, 0), rate
        # A spike joins the history, too: where large norms are usual, later ones are no spikes.
        self._norms.append(norm)
        self._taken.append(taken)
        # The first norms of a training are large; a spike no larger than these is no news.
        if len(self._start) < self.limits.least_history:
            self._start.append(norm)
        return spike

    def _spike(self, position: int, norm: float, taken: float, *, loss_jumps: bool) -> Spike | None:
        largest = max(self._norms)
        self.highest = max(self.highest, norm / largest)
        if norm <= self.limits.beyond * largest:  # a quick check that decides most steps
            return None
        usual = median(self._norms)
        # A jump of the loss is a second sign, so that a smaller norm is enough.
        factor = self.limits.together if loss_jumps else self.limits.factor
        if norm <= factor * usual:
            return None
        # Norms have heavy tails, so they are compared on the logarithmic scale.
        deviations = robust_deviations([log(one) for one in self._norms], log(norm))
        if deviations <= self.limits.deviations:
            return None
        return Spike(
            position=position,
            norm=norm,
            usual=usual,
            is_caught=taken <= factor * median(self._taken),
            is_new=norm > max(self._start),
            deviations=deviations,
        )


def robust_deviations(history: Collection[float], value: float) -> float:
    """Return the distance of a value above the median of a history, in standard deviations.

    The deviation is that of the middle half, which outliers do not change.
    """
    usual = median(history)
    deviation = _NORMAL * median(abs(one - usual) for one in history)
    # Equal values have no deviation, and any value above them is infinitely far away.
    return (value - usual) / deviation if deviation > 0 else inf if value > usual else 0.0


def loss_jumps(windows: Sequence[Window], limits: Limits) -> tuple[int, ...]:
    """Return the steps whose loss is above all of the window before it, and an outlier there."""
    losses: deque[float] = deque(maxlen=limits.window)
    found = []
    for position, window in enumerate(windows):
        if window.resumes:
            losses.clear()
        loss = window.passes[-1].loss if window.passes else None
        if loss is None or not isfinite(loss):
            continue
        is_judged = len(losses) >= limits.least_history and loss > max(losses)
        if is_judged and robust_deviations(losses, loss) > limits.deviations:
            usual = median(losses)
            if loss - usual > _LEAST_JUMP * abs(usual):
                found.append(position)
        losses.append(loss)
    return tuple(found)


def spikes_of(
    windows: Sequence[Window], norm_of: Callable[[Window], float], history: History
) -> list[Spike]:
    """Return the spikes among the steps of an optimizer; steps without a finite norm are none."""
    found = []
    jumps = loss_jumps(windows, history.limits)
    for position, window in enumerate(windows):
        if window.resumes:
            history.resume()
        taken = window.step.norm
        if taken is not None and isfinite(taken) and taken > 0:
            # A norm before the clips may be unknown, and is never below what the step got.
            norm = max(norm_of(window), taken)
            following = bisect_left(jumps, position)
            is_joined = following < len(jumps) and jumps[following] <= position + _FOLLOWS
            spike = history.judge(position, norm, taken, window.step.lr, loss_jumps=is_joined)
            found += [] if spike is None else [spike]
    return found


def unmeasured_jump(windows: Sequence[Window], limits: Limits) -> tuple[int, float] | None:
    """Return the first step without a norm whose loss is far above all before, and how many times.

    A squared error grows with the square of its gradient. The loss comes down again: the batch was
    another one, not the weights.
    """
    highest, before = _LEAST_LOSS, 0
    raised, rate = -limits.least_history, None
    for position, window in enumerate(windows):
        loss = window.passes[-1].loss if window.passes else None
        if loss is None or not isfinite(loss) or loss < 0:
            return None
        if rate and window.step.lr and window.step.lr > _STEEP * rate:
            raised = position
        rate = window.step.lr
        is_judged = window.step.norm is None and before >= limits.least_history
        if is_judged and position - raised >= limits.least_history:
            times = loss / highest
            if times > limits.factor**2 and _comes_down(windows, position, loss):
                return position, times
        highest, before = max(highest, loss), before + 1
    return None


def _comes_down(windows: Sequence[Window], position: int, loss: float) -> bool:
    after = [one.passes[-1].loss for one in windows[position + 1 : position + 1 + _FOLLOWS]]
    known = [one for one in after if one is not None and isfinite(one)]
    return len(known) == len(after) > 0 and median(known) < loss / 10


def occurrences(
    spike: Spike, series: Series, kept: KeptSteps, norm_of: Callable[[Window], float]
) -> int:
    """Return how often steps as large as a spike occur at most; consecutive ones count once.

    It is exact for the steps that are in no summary.
    """
    large = _COMPARABLE * spike.norm
    found: dict[int, int] = {}
    # `raw` are norms before clips, which are known only where a clip measured them.
    for kind in ("raw", "norm"):
        for span in kept.spans(kind, series.optimizers or (None,)):
            found[span.first] = max(found.get(span.first, 0), most_above(span.bucket, large))
    windows = [one for one in series.windows if not kept.is_summarised(one.step.step)]
    return sum(found.values()) + _bursts(large, windows, norm_of)


def most_above(bucket: Bucket, limit: float) -> int:
    """Return how often numbers of a bucket can exceed a limit; consecutive ones count once."""
    if not bucket.count or bucket.highest < limit:
        return 0
    # Two bursts have at least so many steps between them.
    most = ceil(bucket.count / (_BURST + 1))
    if limit > bucket.lowest:
        # The mean gives the sum of all excesses over the lowest value. What the highest one leaves
        # of it is enough for so many more beyond the limit.
        others = bucket.count * (bucket.mean - bucket.lowest) - (bucket.highest - bucket.lowest)
        most = min(most, 1 + int(max(others, 0.0) / (limit - bucket.lowest)))
    return most


def _bursts(limit: float, windows: Sequence[Window], norm_of: Callable[[Window], float]) -> int:
    """Return how often steps have such a norm; consecutive ones count once."""
    large = [
        position
        for position, window in enumerate(windows)
        if max(norm_of(window), window.step.norm or 0.0) >= limit
    ]
    return sum(
        1 for before, position in pairwise([-_BURST - 1, *large]) if position - before > _BURST
    )
