"""What watching may cost: the share of a training's own time, and what of it is left."""

import math
from collections import deque
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Literal

from gradscope.errors import GradscopeError

WindowKind = Literal["repeated", "events", "measured", "captured"]
"""How much of a step is recorded: that it was as another, its events, norms too, tensors too."""

DEFAULT = 0.05
"""The share of a training's own time that watching may take, where nothing else is said."""

FIRST = 100
"""The norms of this many first steps are always measured."""

REPEATED_EVENT = 10e-6
"""Seconds that a call costs in a step that repeats another, to be compared alone."""

REPEATED_STEP = 40e-6
"""Seconds that watching a step costs that repeats another. Measured on a step of zero, backward and
step: it is not timed, as that would add to it."""

_TOGETHER = 0.02
"""Seconds of repeated steps that are accounted for together."""

_MOST_TOGETHER = 64

_RECENT = 9
_MOST_SAVED = 0.25
"""Seconds of allowance that may be saved up, or twice what one measurement costs."""


def check_share(share: object) -> None:
    """Make sure that a budget is a share.

    Raises:
        GradscopeError: It is not.
    """
    is_number = isinstance(share, int | float) and not isinstance(share, bool)
    if share is not None and not (is_number and 0 < share < math.inf):  # type: ignore[operator]
        raise GradscopeError(
            f"budget is {share!r}, expected a share such as 0.05, or None for no limit"
        )


class Budget:
    """Keeps the books of what watching costs, and says what the next step may cost.

    The time of a step that is captured cannot be taken apart: every call of torch's is seen. What
    it costs is what it takes longer than other steps, less what gradscope spends in those.

    Args:
        share: Of the training's own time; None for no limit.
        clock: Gives the time in seconds.
    """

    def __init__(self, share: float | None, clock: Callable[[], float] = perf_counter) -> None:
        self.share, self._clock = share, clock
        self.spent = self.elapsed = 0.0
        """Seconds: gradscope's own, and of all since the first step was over."""
        self._own = 0.0
        """Of the step that runs."""
        self._last: float | None = None
        self.together = 1
        """Number of repeated steps that are accounted for together."""
        self._bare: deque[float] = deque(maxlen=_RECENT)
        """Seconds that recent steps took without gradscope."""
        self._early: list[tuple[float, float]] = []
        """Captured steps before any other: the seconds that each took, and of these our own."""
        self._recent: dict[WindowKind, deque[float]] = {
            kind: deque(maxlen=_RECENT) for kind in ("measured", "captured")
        }
        self._norm_cost = self._capture_cost = 0.0
        """What a step cost lately whose norms were measured, and one that was captured."""
        self._norms = self._captures = 0.0
        """What may be spent on each; negative where the first steps took it in advance."""

    @property
    def is_unlimited(self) -> bool:
        """Whether there is no limit."""
        return self.share is None

    @property
    def spent_share(self) -> float | None:
        """The share of the training's own time that was spent; None before anything is known."""
        bare = self.elapsed - self.spent
        return self.spent / bare if bare > 0 else None

    def spend(self, seconds: float) -> None:
        """Take in time of gradscope's own in the step that runs."""
        self._own += seconds

    def repeated_steps_ended(self, count: int) -> None:
        """Take in that steps are over that repeat others."""
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
        """Take in that a step is over that was recorded in full."""
        now = self._clock()
        own, self._own = self._own, 0.0
        last, self._last = self._last, now
        if last is None:  # what came before the first step is no training
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
        self._take("captured", took, min(max(own, took - median(self._bare)), took))

    def _take_early(self) -> None:
        """Account for the first captured steps, once it is known what others take."""
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
        if kind == "captured":
            self._captures -= own
        elif kind == "measured":
            self._norms -= own
        else:
            income -= own
        most_norms = max(_MOST_SAVED, 2 * self._norm_cost)
        most_captures = max(_MOST_SAVED, 2 * self._capture_cost)
        norms = min(self._norms + income / 2, most_norms)
        # What norms have no use for goes to captures, and the other way round.
        rest = income - (norms - self._norms)
        captures = min(self._captures + rest, most_captures)
        rest -= captures - self._captures
        self._norms = min(norms + max(rest, 0.0), most_norms)
        self._captures = captures

    def affords_norms(self) -> bool:
        """Return whether the norms of the next step can be paid for."""
        return self.share is None or self._norms >= self._norm_cost

    def affords_capture(self) -> bool:
        """Return whether the next step can be captured."""
        if self.share is None:
            return True
        # Before any other step nobody knows what one costs.
        return bool(self._bare) and self._captures >= self._capture_cost
