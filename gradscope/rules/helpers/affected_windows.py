"""The steps of optimizers that show a mistake, grouped by the line that causes it."""

from collections import Counter
from collections.abc import Callable, Iterable

from gradscope.analysis.kept_steps import steps_of
from gradscope.analysis.windows import Series, Window
from gradscope.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedWindows:
    """The steps of an optimizer that show a mistake."""

    series: Series
    windows: tuple[Window, ...]
    """Windows with the problem, at least one."""
    judged: int
    """Number of windows that were judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Sightings of a mistake at one line."""

    site: int | None
    affected: tuple[AffectedWindows, ...]

    @property
    def windows(self) -> tuple[Window, ...]:
        """Windows that show the finding."""
        return tuple(window for one in self.affected for window in one.windows)

    @property
    def step_count(self) -> int:
        """Number of steps that show the finding."""
        return steps_of(self.windows)

    @property
    def judged(self) -> int:
        """Number of steps that were judged."""
        return sum(one.judged for one in self.affected)

    @property
    def first(self) -> Window:
        """First window that shows the mistake."""
        return min(self.windows, key=lambda window: window.step.position)

    @property
    def parameters(self) -> tuple[int, ...]:
        """Parameters of the optimizers concerned."""
        held = (index for one in self.affected for index in one.series.parameters)
        return tuple(dict.fromkeys(held))

    @property
    def text(self) -> str:
        """Text of the steps: `9 of 10 steps`, or `all 10 steps`."""
        judged = "1 step" if self.judged == 1 else f"{self.judged:,} steps"
        if self.step_count == self.judged > 1:
            return f"all {judged}"
        return f"{self.step_count:,} of {judged}"


def by_line(
    affected: Iterable[AffectedWindows], line: Callable[[Window], int | None]
) -> tuple[Group, ...]:
    """Return the affected windows grouped by the line that most of them point to.

    Parameters may have an optimizer each, that all show the same mistake.
    """
    found: dict[int | None, list[AffectedWindows]] = {}
    for one in affected:
        site = most_common(line(window) for window in one.windows)
        found.setdefault(site, []).append(one)
    return tuple(Group(site=site, affected=tuple(ones)) for site, ones in found.items())


def most_common(sites: Iterable[int | None]) -> int | None:
    """Return the line that occurs most often, the first one of several; None if none is known."""
    counts = Counter(site for site in sites if site is not None)
    return counts.most_common(1)[0][0] if counts else None
