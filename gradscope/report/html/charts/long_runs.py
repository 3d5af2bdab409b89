"""Numbers over more steps than a chart can draw one by one: the page puts those in view together.

The page has the finest numbers that there is room for, and draws the mean of neighbouring steps and
a band from their lowest to their highest number. The further it is zoomed in, the fewer are
neighbours.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from gradscope.analysis.kept_steps import Span
from gradscope.frozen import dataclass
from gradscope.report.html.charts.axes import MOST_MARKS
from gradscope.report.html.charts.colours import logarithm
from gradscope.report.html.charts.heat import WIDTH, Cell, Heat, HeatRow
from gradscope.report.html.columns import Json, numbers, positions, single_numbers

_ROOM = 40_000
"""Number of entries of all curves of a chart."""


_CELLS, _COLUMNS = 300_000, 8_000
"""Maximum number of cells of a level, and of its columns: 0.8 megabytes of a page."""
_LEVELS_ROOM = 1_900_000
"""Bytes of a page for the heatmap, below which levels are added: other charts take the rest."""
_SHOWN, _FINER = 16 / 3, 8 / 3
"""Bytes of a cell that is shown at first, and of one of a finer level."""
ZERO, BROKEN, MISSING = range(3)
"""States of cells without a logarithm, as the page knows them."""
_STATES = 3
"""Number of states: larger codes of cells are logarithms."""
_FINEST = 2**15 - 1 - _STATES
"""Largest logarithm in two bytes: steps of 0.1 % of a norm where a row spans 14 powers of ten."""


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


def width_of(rows: Sequence[HeatRow]) -> int:
    """Return the largest number of columns that there is room for, with those of finer levels."""
    width = min(_CELLS // max(len(rows), 1), _COLUMNS)
    # Columns less than twice as fine are not worth their bytes.
    return WIDTH if width < 2 * WIDTH else width


def finer_levels(finest: Sequence[Heat], found: Sequence[Heat]) -> dict[str, Json]:
    """Return the finer columns by quantity, as long as there is room, the gradients first.

    There are none where the heatmap has a column for each step.

    Args:
        finest: The quantities in as many columns as there is room for.
        found: What the heatmap shows at first of each.
    """
    room = _LEVELS_ROOM - _SHOWN * sum(map(_size, found))
    levels: dict[str, Json] = {}
    for heat, shown in zip(finest, found, strict=True):
        taken = _FINER * _size(heat)
        if len(heat.columns) > len(shown.columns) and taken <= room:
            levels[heat.quantity] = _level(heat)
            room -= taken
    return levels


def _size(heat: Heat) -> int:
    return len(heat.cells) * len(heat.columns)


def _level(heat: Heat) -> Json:
    return {
        "edges": edges(heat),
        "steps": positions(one.telling for one in heat.columns),
        "first": positions(one.first for one in heat.columns),
        "last": positions(one.last for one in heat.columns),
        "rows": [_row(line, len(heat.columns)) for line in heat.cells],
    }


def _row(line: Mapping[int, Cell], columns: int) -> Json:
    """Return the cells of a row in two bytes each: a state, or a logarithm above the lowest."""
    logs = {at: log for at, cell in line.items() if (log := logarithm(cell)) is not None}
    low, high = min(logs.values(), default=0.0), max(logs.values(), default=0.0)
    size = (high - low) / _FINEST
    codes: list[int | None] = [None] * columns
    for at, cell in line.items():
        log = logs.get(at)
        codes[at] = _state(cell) if log is None else _STATES + _code(log - low, size)
    return {"low": low, "size": size, "codes": positions(codes)}


def _code(above: float, size: float) -> int:
    return round(above / size) if size else 0


def _state(cell: Cell) -> int | None:
    """Return the state of a measured cell; None of one with a logarithm."""
    if cell is None:
        return MISSING
    if not math.isfinite(cell):
        return BROKEN
    return None if cell else ZERO


def edges(heat: Heat) -> Json:
    """Return where columns begin, and the end of the last."""
    starts = [one.start for one in heat.columns]
    return numbers([step - 0.5 for step in (*starts, heat.last_step + 1)])
