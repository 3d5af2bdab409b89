"""Optimizers whose steps add up the gradients of several micro-batches."""

from collections import Counter
from dataclasses import dataclass

from gradscope.analysis.optimizer_steps import RunEvent, Series, Window, Windows
from gradscope.rules.accumulation.missing_zero_grad import carries
from gradscope.rules.context import RuleContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulation:
    """An optimizer most of whose steps are fed by several passes of one line."""

    series: Series
    windows: tuple[Window, ...]
    """The steps that are."""
    passes: int
    """As many as most of them have."""

    @property
    def site(self) -> int | None:
        """The line of the backward."""
        return self.windows[0].passes[0].site

    @property
    def whole(self) -> tuple[Window, ...]:
        """The steps of so many passes."""
        return tuple(window for window in self.windows if len(window.passes) == self.passes)


def accumulations(context: RuleContext) -> tuple[Accumulation, ...]:
    """Return the optimizers that accumulate."""
    found = [_accumulation(series) for series in context.shared(Windows).series]
    return tuple(one for one in found if one is not None)


def _accumulation(series: Series) -> Accumulation | None:
    windows = tuple(window for window in series.windows if _accumulates(window))
    if not windows or 2 * len(windows) < len(series.windows):
        return None
    passes = Counter(len(window.passes) for window in windows).most_common(1)[0][0]
    return Accumulation(series=series, windows=windows, passes=passes)


def _accumulates(window: Window) -> bool:
    """Return whether a step is fed by passes of one line, over the same parameters each."""
    first, *others = window.passes or (None,)
    if first is None or not others or carries(window):
        return False
    return all(_is_alike(first, one) for one in others)


def _is_alike(one: RunEvent, other: RunEvent) -> bool:
    is_repeated = bool(other.count("again"))
    return (
        one.site == other.site
        and not is_repeated
        and one.number("reached") == other.number("reached")
    )


def is_mean(passes: tuple[RunEvent, ...]) -> bool:
    """Return whether each loss is known to be a mean over its micro-batch."""
    return bool(passes) and all(one.number("reduction") == 1 for one in passes)
