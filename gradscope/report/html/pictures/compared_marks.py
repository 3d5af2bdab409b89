"""Parameters of two sides as marks, by how they changed."""

from collections.abc import Iterator, Mapping, Sequence

from gradscope.comparison.parameters import CHANGES, WORSE, Change
from gradscope.report.comparison.words import TITLES
from gradscope.report.html.columns import Json, places
from gradscope.report.html.comparison_pairs import PairRow

MOST_MARKS = 3000
"""Parameters that are drawn one by one."""
TABLE = "compared-parameters"
"""The table that tells of each mark."""
_COLORS: Mapping[Change, str] = {
    "non-finite": "@broken",
    "lost": "@none",
    "zero": "@zero",
    "frozen": "@frozen",
    "reshaped": "@series-6",
    "turned": "@series-5",
    "norm": "@error",
    "finite": "@good",
    "gained": "@good",
    "missing": "@none",
    "new": "@good",
    "within": "@gradient",
    "rounding": "@ink-soft",
    "shard": "@ink-soft",
    "equal": "@series-4",
    "none": "@frozen",
}
_ORDINARY: tuple[Change, ...] = ("within", "rounding", "shard", "equal", "none")

Trace = dict[str, Json]


def drawn(rows: Sequence[PairRow], most: int = MOST_MARKS) -> list[PairRow]:
    """Return the parameters to draw: of many those that changed, and of the others some."""
    if len(rows) <= most:
        return list(rows)
    told = [row.pair.change not in _ORDINARY for row in rows]
    step = -(-len(rows) // most)
    return [row for at, row in enumerate(rows) if told[at] or at % step == 0]


def drawn_text(rows: Sequence[PairRow]) -> str:
    """Return what of many parameters is drawn; empty where all are."""
    count = len(drawn(rows))
    if count == len(rows):
        return ""
    return f"Of {len(rows):,} parameters {count:,} are drawn: all that changed, some of the others."


def by_change(rows: Sequence[PairRow]) -> Iterator[tuple[Change, list[PairRow]]]:
    """Yield parameters that changed alike, the worst last: they are drawn over the others."""
    for change in reversed(CHANGES):
        found = [row for row in rows if row.pair.change == change]
        if found:
            yield change, found


def title_of(change: Change) -> str:
    """Return what a change is called."""
    return TITLES[change]


def color_of(change: Change) -> str:
    """Return the colour of a change."""
    return _COLORS[change]


def marks(rows: Sequence[PairRow]) -> Trace:
    """Return the marks of parameters that changed alike, without their places."""
    change = rows[0].pair.change
    is_worse = change in WORSE
    return {
        "type": "scatter",
        "mode": "markers",
        "name": title_of(change),
        "legendgroup": change,
        "marker": {
            "color": color_of(change),
            "size": 9 if is_worse else 7,
            "symbol": "diamond" if is_worse else "circle",
            "opacity": 0.85,
        },
        "meta": {
            "links": {
                "module": places(row.module for row in rows),
                "parameter": places(row.rank for row in rows),
            },
            "told": TABLE,
        },
    }
