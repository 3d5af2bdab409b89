"""Numbers over more steps than a chart can draw one by one: the page puts those in view together.

The page has the finest numbers that there is room for, and draws the mean of neighbouring steps and
a band from their lowest to their highest number. The further it is zoomed in, the fewer are
neighbours.
"""

import math
from collections.abc import Iterable, Sequence

from gradscope.analysis.kept_steps import Span
from gradscope.frozen import dataclass
from gradscope.report.html.charts.axes import MOST_MARKS
from gradscope.report.html.columns import Json, numbers, positions, single_numbers

_ROOM = 40_000
"""Number of entries of all curves of a chart."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A number over some steps."""

    first: int
    count: int
    """Number of steps."""
    mean: float
    """NaN or infinite if one of the numbers is."""
    low: float
    high: float


def envelope(
    points: Sequence[tuple[int, float]], spans: Sequence[Span], curves: int
) -> dict[str, Json] | None:
    """Return the columns of a curve; None if all of its points can be drawn.

    Args:
        points: Single steps and their numbers.
        spans: What is known of steps that are not whole.
        curves: Number of curves that share the room.
    """
    if len(points) <= MOST_MARKS and not spans:
        return None
    entries = [Entry(step, 1, value, value, value) for step, value in points]
    entries += (_of_span(span) for span in spans)
    # By their middles, and single steps before a summary that has them too.
    entries.sort(key=lambda one: (one.first + one.count / 2, one.count))
    return _columns(_joined(entries, _ROOM // max(curves, 1)))


def _of_span(span: Span) -> Entry:
    bucket = span.bucket
    mean = math.nan if bucket.broken else bucket.mean
    return Entry(span.first, span.count, mean, bucket.lowest, bucket.highest)


def _joined(entries: Sequence[Entry], most: int) -> list[Entry]:
    """Return at most so many entries, neighbours put together if there are more."""
    size = math.ceil(len(entries) / most)
    if size < 2:
        return list(entries)
    return [_whole(entries[at : at + size]) for at in range(0, len(entries), size)]


def _whole(entries: Sequence[Entry]) -> Entry:
    first = min(one.first for one in entries)
    last = max(one.first + one.count for one in entries)
    weight = sum(one.count for one in entries)
    return Entry(
        first=first,
        count=last - first,
        mean=math.fsum(one.count * one.mean for one in entries) / weight
        if all(math.isfinite(one.mean) for one in entries)
        else math.nan,
        low=min((one.low for one in entries if math.isfinite(one.low)), default=math.nan),
        high=max((one.high for one in entries if math.isfinite(one.high)), default=math.nan),
    )


def _columns(entries: Sequence[Entry]) -> dict[str, Json]:
    """Return columns; lowest and highest numbers are those of the entries of several steps."""
    wide = [one for one in entries if one.count > 1]
    return {
        "first": positions(one.first for one in entries),
        "count": numbers(one.count for one in entries),
        "mean": single_numbers(_finite(one.mean for one in entries)),
        "low": single_numbers(_finite(one.low for one in wide)),
        "high": single_numbers(_finite(one.high for one in wide)),
    }


def _finite(values: Iterable[float]) -> Iterable[float | None]:
    return (value if math.isfinite(value) else None for value in values)
