"""Stretches of a run in which the learning rate is next to nothing."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from gradscope.analysis.windows import Series, Windows
from gradscope.recording.events import SchedulerEvent, StepEvent, only
from gradscope.rules.context import RuleContext

_RATES = re.compile(r"\(lr=([-+.e\d, ]+)\)")
"""The learning rates in an optimizer's description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateStretch:
    """Consecutive steps of an optimizer, at the start or the end of a run."""

    series: Series
    steps: tuple[StepEvent, ...]
    is_end: bool
    highest: float
    """The largest learning rate of the optimizer in the run."""
    rate: float
    """The largest learning rate of these steps."""
    scheduler: SchedulerEvent | None
    """The call of a scheduler's `step` that led to them; None without one."""

    @property
    def share(self) -> float:
        """Share of the optimizer's steps, 0 to 1."""
        return len(self.steps) / len(self.series.windows)


def rate_stretches(
    context: RuleContext, is_lost: Callable[[float, float], bool]
) -> Iterator[RateStretch]:
    """Yield the first and the last steps of each optimizer that are without a learning rate.

    Args:
        context: What is judged.
        is_lost: Whether a learning rate is next to nothing, given it and the highest of the run.
    """
    windows = context.shared(Windows)
    texts = {step.index: step.optimizer for step in context.recording.steps}
    schedulers = list(only(SchedulerEvent, windows.events))
    for series in windows.series:
        steps = [window.step for window in series.windows]
        rates = [_rate(step, texts.get(step.step)) for step in steps]
        known = [rate for rate in rates if rate is not None]
        if len(known) < len(steps) or not windows.requires_grad(series):
            continue
        highest = max(known, default=0.0)
        lost = [is_lost(rate, highest) for rate in known]
        for is_end in (True, False):
            count = sum(1 for _ in takewhile(bool, reversed(lost) if is_end else lost))
            if not 0 < count < len(steps):
                continue
            own = steps[-count:] if is_end else steps[:count]
            before = [
                one
                for one in schedulers
                if one.optimizer in (None, *series.optimizers)
                and (not is_end or one.position < own[0].position)
            ]
            yield RateStretch(
                series=series,
                steps=tuple(own),
                is_end=is_end,
                highest=highest,
                rate=max(known[-count:] if is_end else known[:count]),
                scheduler=None if not before else before[-1 if is_end else 0],
            )


def _rate(step: StepEvent, text: str | None) -> float | None:
    """Return the largest learning rate of a step: its event has that of the first group only."""
    first = step.lr
    listed = _RATES.search(text or "")
    rates = [float(rate) for rate in listed[1].split(", ")] if listed else []
    return first if first is None or len(rates) < 2 else max(first, *rates)
