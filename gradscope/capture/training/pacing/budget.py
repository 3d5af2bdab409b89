"""The cost budget of recording, as a share of the training's own time."""

import math
from collections import deque
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Literal

from gradscope.errors import GradscopeError

WindowKind = Literal["repeated", "events", "measured", "captured"]
"""Detail of a recorded step: only that it repeats another, events, norms too, tensors too."""

DEFAULT = 0.05
"""Default share of the training's own time that recording may take."""

FIRST = 100
"""Number of first steps whose norms are always measured."""

REPEATED_EVENT = 10e-6
"""Seconds per call of a repeated step, which is only compared."""

REPEATED_STEP = 40e-6
"""Seconds per repeated step, measured on one of zero, backward and step. It is not timed, because
that would add to it."""

LEAST = 0.2
"""Share of the budget that is for norms even where comparing repeated steps costs all of it: norms
are then measured rarely, but until the end.
"""

_TOGETHER = 0.02
"""Seconds of repeated steps that are accounted for together."""

_MOST_TOGETHER = 64

_RECENT = 9
_MOST_SAVED = 0.25
"""Maximum unused budget in seconds, or twice the cost of one measurement."""


def check_share(share: object) -> None:
    """Check that a budget is a share.

    Raises:
        GradscopeError: It is not a number above 0.
    """
    is_number = isinstance(share, int | float) and not isinstance(share, bool)
    if share is not None and not (is_number and 0 < share < math.inf):  # type: ignore[operator]
        raise GradscopeError(
            f"budget is {share!r}, expected a share such as 0.05, or None for no limit"
        )


class Budget:
    """Accounts for the cost of recording, and decides what the next step may cost.

    The time of a captured step cannot be split, because every torch call is observed. Its cost is
    its time beyond that of other steps, without gradscope's time in those.

    Args:
        share: Share of the training's own time; None for no limit.
        clock: Returns the time in seconds.
    """

    def __init__(self, share: float | None, clock: Callable[[], float] = perf_counter) -> None:
        self.share, self._clock = share, clock
        self.spent = self.elapsed = 0.0
        """Seconds since the end of the first step: gradscope's own, and all."""
        self._own = 0.0
        """gradscope's seconds in the running step."""
        self._last: float | None = None
        self.together = 1
        """Number of repeated steps that are accounted for together."""
        self._bare: deque[float] = deque(maxlen=_RECENT)
        """Seconds that recent steps took without gradscope."""
        self._early: list[tuple[float, float]] = []
        """Captured steps before any other: seconds in total, and gradscope's own."""
        self._recent: dict[WindowKind, deque[float]] = {
            kind: deque(maxlen=_RECENT) for kind in ("measured", "captured")
        }
        self._norm_cost = self._capture_cost = 0.0
        """Recent cost of a step with measured norms, and of a captured step."""
        self._norms = self._captures = 0.0
        """Remaining budget of each; negative if the first steps used it in advance."""
        self._reserve = 0.0
        """Budget for the next measurement of norms, whatever else was spent."""

    @property
    def is_unlimited(self) -> bool:
        """Whether there is no limit."""
        return self.share is None

    @property
    def spent_share(self) -> float | None:
        """Share of the training's own time that was spent; None before it is known."""
        bare = self.elapsed - self.spent
        return self.spent / bare if bare > 0 else None

    def spend(self, seconds: float) -> None:
        """Add time that gradscope spent in the running step."""
        self._own += seconds

    def repeated_steps_ended(self, count: int) -> None:
        """Account for finished steps that repeat others."""
        now = self._clock()
        own, self._own = self._own + count * REPEATED_STEP, 0.0
        last, self._last = self._last, now
        if last is None:
            return
        took = now - last
        own = min(own, took)
        self._bare.append((took - own) / count)
        self.together = min(max(1, int(count * _TOGETHER / max(took, 1e-9))), _MOST_TOGETHER)
        self._take("repeated", took, own)

    def step_ended(self, kind: WindowKind) -> None:
        """Account for a finished step that was recorded in full."""
        now = self._clock()
        own, self._own = self._own, 0.0
        last, self._last = self._last, now
        if last is None:  # time before the first step is not training time
            return
        took = now - last
        if kind != "captured":
            own = min(own, took)
            self._bare.append(took - own)
            self._take(kind, took, own)
            self._take_early()
        elif self._bare:
            self._take_captured(took, own)
        else:
            self._early.append((took, own))

    def _take_captured(self, took: float, own: float) -> None:
        # The median, because an evaluation or a checkpoint makes some steps many times longer.
        self._take("captured", took, min(max(own, took - median(self._bare)), took))

    def _take_early(self) -> None:
        """Account for the first captured steps, once the time of other steps is known."""
        early, self._early = self._early, []
        for took, own in early:
            self._take_captured(took, own)

    def _take(self, kind: WindowKind, took: float, own: float) -> None:
        self.elapsed += took
        self.spent += own
        if kind in self._recent:
            self._learn(kind, own)
        if self.share is not None:
            self._account(kind, own, self.share * (took - own))

    def _learn(self, kind: WindowKind, own: float) -> None:
        self._recent[kind].append(own)
        self._norm_cost = median(self._recent["measured"] or (0.0,))
        self._capture_cost = median(self._recent["captured"] or (0.0,))

    def _account(self, kind: WindowKind, own: float, income: float) -> None:
        reserve = self._reserve + LEAST * income
        self._reserve = max(reserve - own, 0.0) if kind == "measured" else reserve
        if kind == "captured":
            self._captures -= own
        elif kind == "measured":
            self._norms -= own
        else:
            income -= own
        # Capped, so that a long quiet stretch is not followed by a burst of measurements.
        most_norms = max(_MOST_SAVED, 2 * self._norm_cost)
        most_captures = max(_MOST_SAVED, 2 * self._capture_cost)
        norms = min(self._norms + income / 2, most_norms)
        # Budget that norms do not use goes to captures, and the reverse.
        rest = income - (norms - self._norms)
        captures = min(self._captures + rest, most_captures)
        rest -= captures - self._captures
        self._norms = min(norms + max(rest, 0.0), most_norms)
        self._captures = captures

    def affords_norms(self) -> bool:
        """Return whether the budget allows to measure the norms of the next step."""
        return self.share is None or max(self._norms, self._reserve) >= self._norm_cost

    def affords_capture(self) -> bool:
        """Return whether the budget allows to capture the next step."""
        if self.share is None:
            return True
        # The cost of a step is unknown before there was another step.
        return bool(self._bare) and self._captures >= self._capture_cost
