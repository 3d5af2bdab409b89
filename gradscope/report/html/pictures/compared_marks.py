"""Parameters of two sides as marks, by how they changed."""

from collections.abc import Iterator, Mapping, Sequence

from gradscope.comparison.parameters import CHANGES, WORSE, Change
from gradscope.comparison.side import Side, SideParameter
from gradscope.report.comparison.figures import ratio_text
from gradscope.report.comparison.words import TITLES
from gradscope.report.html.columns import Json, places
from gradscope.report.html.comparison_pairs import PairRow
from gradscope.report.html.pictures.lettering import hover, number
from gradscope.report.page import UNICODE

MOST_MARKS = 3000
"""Parameters that are drawn one by one."""
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
    "equal": "@series-4",
    "none": "@frozen",
}
_ORDINARY: tuple[Change, ...] = ("within", "rounding", "equal", "none")

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
                "parameter": places(row.place for row in rows),
            }
        },
    }


def told(row: PairRow, sides: tuple[Side, Side]) -> str:
    """Return all that is told of a parameter."""
    pair = row.pair
    ratios = (
        ("ratio", pair.ratio),
        ("weights, ratio", pair.weight_ratio),
        ("cosine", pair.cosine),
        ("relative difference", pair.relative_difference),
    )
    own = zip(sides, (row.base, row.other), strict=True)
    lines: list[tuple[str, str | None]] = [(side.letter, _norm(one)) for side, one in own]
    lines += [(name, ratio_text(value, UNICODE)) for name, value in ratios if value is not None]
    return hover(row.name, [*lines, ("", TITLES[pair.change])])


def _norm(one: SideParameter | None) -> str:
    if one is None:
        return "no such parameter"
    return number(one.norm) if one.norm is not None else one.reason or one.reach
