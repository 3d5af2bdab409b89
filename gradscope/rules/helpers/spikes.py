"""Steps of a run whose gradient norm stands out from those before."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, log
from statistics import median

from gradscope.analysis.windows import Window

_NORMAL = 1.4826
"""Standard deviations in a median absolute deviation, of a normal distribution."""
_BURST = 3
"""Steps apart at most: weights that a spike has driven off have large gradients for a while."""
_COMPARABLE = 0.3
"""Share of a spike's norm from which another step counts as equally large."""
_STEEP = 1.5
"""Times the learning rate before: a rise that takes some steps to get used to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What makes a spike; the fields are those of the rule."""

    factor: float
    beyond: float
    deviations: float
    window: int
    least_history: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spike:
    """A step whose gradient norm is far above those before it."""

    position: int
    """Index among the steps of the optimizer."""
    norm: float
    """Gradient norm before clips."""
    usual: float
    """The median of the steps before."""
    is_caught: bool
    """Whether a clip kept it from the weights."""
    is_new: bool
    """Whether it is above all norms of the run's first steps."""

    @property
    def times(self) -> float:
        """How many times the usual norm it is."""
        return self.norm / self.usual


class History:
    """The steps of one optimizer, judged one after the other."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._norms: deque[float] = deque(maxlen=limits.window)
        self._taken: deque[float] = deque(maxlen=limits.window)
        self._start: list[float] = []
        self._quiet = 0
        self.highest = 0.0
        """Largest ratio of a norm to the largest of the window before it."""
        self._rate: float | None = None

    def judge(self, position: int, norm: float, taken: float, rate: float | None) -> Spike | None:
        """Take in a step, and return it if it is a spike.

        Args:
            position: Of the step.
            norm: Of its gradient, before clips.
            taken: What clips have left of it.
            rate: The learning rate.
        """
        if self._rate and rate and rate > _STEEP * self._rate:
            self._quiet = self._limits.least_history
        spike = None
        if len(self._norms) >= self._limits.least_history and not self._quiet:
            spike = self._spike(position, norm, taken)
        self._quiet, self._rate = max(self._quiet - 1, 0), rate
        self._norms.append(norm)
        self._taken.append(taken)
        if len(self._start) < self._limits.least_history:
            self._start.append(norm)
        return spike

    def _spike(self, position: int, norm: float, taken: float) -> Spike | None:
        largest = max(self._norms)
        self.highest = max(self.highest, norm / largest)
        if norm <= self._limits.beyond * largest:  # quickly told, and so of most steps
            return None
        usual = median(self._norms)
        if norm <= self._limits.factor * usual or not self._is_outlier(norm, usual):
            return None
        return Spike(
            position=position,
            norm=norm,
            usual=usual,
            is_caught=taken <= self._limits.factor * median(self._taken),
            is_new=norm > max(self._start),
        )

    def _is_outlier(self, norm: float, usual: float) -> bool:
        """Return whether it is one on the logarithmic scale: norms have heavy tails."""
        deviation = _NORMAL * median(abs(log(one / usual)) for one in self._norms)
        return log(norm / usual) > self._limits.deviations * deviation


def spikes_of(
    windows: Sequence[Window], norm_of: Callable[[Window], float], history: History
) -> list[Spike]:
    """Return the spikes among the steps of an optimizer; steps without a finite norm are none."""
    found = []
    for position, window in enumerate(windows):
        taken = window.step.norm
        if taken is not None and isfinite(taken) and taken > 0:
            norm = max(norm_of(window), taken)
            spike = history.judge(position, norm, taken, window.step.lr)
            found += [] if spike is None else [spike]
    return found


def times_seen(spike: Spike, windows: Sequence[Window], norm_of: Callable[[Window], float]) -> int:
    """Return how often steps come that are as large as a spike, those in a row counted once."""
    large = [
        position
        for position, window in enumerate(windows)
        if max(norm_of(window), window.step.norm or 0.0) >= _COMPARABLE * spike.norm
    ]
    return sum(position - before > _BURST for before, position in pairwise([-_BURST - 1, *large]))
