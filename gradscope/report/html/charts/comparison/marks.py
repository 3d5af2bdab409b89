"""Parameters of two sides as marks and as rows of a table, by how they changed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from gradscope.comparison.comparison import Comparison
from gradscope.comparison.findings import ComparedFinding, Standing
from gradscope.comparison.parameters import CHANGES, WORSE, Change, ComparedParameter, ParameterPair
from gradscope.comparison.regressions import ComparisonVerdict, Outcome
from gradscope.comparison.side import Side, SideParameter
from gradscope.frozen import dataclass
from gradscope.report.documents.comparison_phrasing import TITLES
from gradscope.report.html.columns import Json, ModuleIndices, numbers, positions, texts
from gradscope.report.html.page import Chart
from gradscope.report.html.tables import NumberKind, column

_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow:
    """A parameter that one of the two has at least."""

    position: int
    """Index in the order of the model."""
    rank: int
    """Rank by the size of the change, largest first: its row in the table, by which charts refer to
    it.
    """
    name: str
    module: int | None
    """Row of its module in the base; None if the base has no such module."""
    base: SideParameter | None
    other: SideParameter | None
    pair: ParameterPair


def pair_of(comparison: Comparison, position: int) -> Comparison:
    """Return the comparison of the base with one other side."""
    regressions = tuple(one for one in comparison.verdict.regressions if one.side == position)
    verdict = comparison.verdict
    outcome: Outcome = "unjudged" if verdict.skip_reasons else "failed" if regressions else "passed"
    return replace(
        comparison,
        sides=_both(comparison.sides, position),
        differences=tuple(
            replace(one, values=values)
            for one in comparison.differences
            if len(set(values := _both(one.values, position))) > 1
        ),
        renamings=_both(comparison.renamings, position),
        directions=_both(comparison.directions, position),
        parameters=tuple(
            replace(one, sides=_both(one.sides, position), pairs=_both(one.pairs, position))
            for one in comparison.parameters
            if any(_both(one.sides, position))
        ),
        findings=tuple(
            ComparedFinding(findings=_both(one.findings, position))
            for one in comparison.findings
            if any(_both(one.findings, position))
        ),
        curves=tuple(
            replace(one, sides=_both(one.sides, position), partings=_both(one.partings, position))
            for one in comparison.curves
        ),
        verdict=ComparisonVerdict(
            outcome=outcome,
            regressions=tuple(replace(one, side=1) for one in regressions),
            skip_reasons=verdict.skip_reasons,
        ),
    )


def _both(values: tuple[_Kind, ...], position: int) -> tuple[_Kind, ...]:
    return values[0], values[position]


def pair_rows(pair: Comparison) -> list[PairRow]:
    """Return the parameters of two sides, in the order of the base."""
    modules = ModuleIndices(pair.sides[0].report)
    worst = sorted(range(len(pair.parameters)), key=lambda at: pair.parameters[at].worst)
    ranks = {position: rank for rank, position in enumerate(worst)}
    return [
        PairRow(
            position=position,
            rank=ranks[position],
            name=one.name,
            module=modules.of(_module(one)),
            base=one.sides[0],
            other=one.sides[1],
            pair=found,
        )
        for position, one in enumerate(pair.parameters)
        if (found := one.pairs[1]) is not None
    ]


def _module(one: ComparedParameter) -> str | None:
    return next((side.module for side in one.sides if side is not None), None)


def by_standing(pair: Comparison) -> Iterator[tuple[Standing, ComparedFinding]]:
    """Yield findings by change: new, gone, or the same."""
    order: tuple[Standing, ...] = ("came", "worse", "went", "milder", "stayed")
    standings = [(one.standing(1), one) for one in pair.findings]
    for wanted in order:
        yield from ((wanted, one) for standing, one in standings if standing == wanted)


MOST_MARKS = 3000
"""Maximum number of parameters that are drawn singly."""
TABLE = "compared-parameters"
"""Table with the numbers of each mark."""
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
    """Return the parameters to draw; of many, those that changed, and some of the others."""
    if len(rows) <= most:
        return list(rows)
    reported = [row.pair.change not in _ORDINARY for row in rows]
    step = -(-len(rows) // most)
    return [row for at, row in enumerate(rows) if reported[at] or at % step == 0]


def drawn_text(rows: Sequence[PairRow]) -> str:
    """Return which of many parameters are drawn; empty if all are."""
    count = len(drawn(rows))
    if count == len(rows):
        return ""
    return f"{count:,} of {len(rows):,} parameters are drawn: all that changed, and some others."


def by_change(rows: Sequence[PairRow]) -> Iterator[tuple[Change, list[PairRow]]]:
    """Yield parameters by change, the worst last, so that they are drawn over the others."""
    for change in reversed(CHANGES):
        found = [row for row in rows if row.pair.change == change]
        if found:
            yield change, found


def title_of(change: Change) -> str:
    """Return the title of a change."""
    return TITLES[change]


def color_of(change: Change) -> str:
    """Return the colour of a change."""
    return _COLORS[change]


def marks(rows: Sequence[PairRow]) -> Trace:
    """Return the marks of parameters with the same change, without their positions."""
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
            # Shapes tell them apart without the colours.
            "symbol": "diamond" if is_worse else "circle",
            "opacity": 0.85,
        },
        "meta": {
            "links": {
                "module": positions(row.module for row in rows),
                "parameter": positions(row.rank for row in rows),
            },
            "told": TABLE,
        },
    }


_ROW = 26
_HEIGHT = 480


def pair_table(rows: Sequence[PairRow], sides: tuple[Side, Side]) -> Chart:
    """Return the table of two sides."""
    ordered = sorted(rows, key=lambda row: row.rank)
    columns = list(_columns(ordered, sides))
    links: dict[str, Json] = {
        "module": positions(row.module for row in ordered),
        "parameter": positions(row.rank for row in ordered),
    }
    return _table(columns, links, len(ordered))


def _table(columns: Sequence[Json], links: dict[str, Json], count: int) -> Chart:
    return Chart(
        name=TABLE,
        kind="table",
        title=f"Parameters ({count:,})",
        caption="Largest changes first. Click a header to sort, a row to highlight the layer.",
        content={"name": "parameters", "columns": columns, "links": links},
        height=min(90 + _ROW * count, _HEIGHT),
    )


def _columns(rows: Sequence[PairRow], sides: tuple[Side, Side]) -> Iterator[Json]:
    base, other = sides
    yield column("parameter", "name", texts(row.name for row in rows))
    names = [row.other.name if row.other is not None else None for row in rows]
    if any(name not in (None, row.name) for name, row in zip(names, rows, strict=True)):
        yield column(f"name in {other.letter}", "name", texts(names))
    yield column("change", "text", texts(TITLES[row.pair.change] for row in rows))
    yield column(f"norm {base.letter}", "number", numbers(_norm(row.base) for row in rows))
    yield column(f"norm {other.letter}", "number", numbers(_norm(row.other) for row in rows))
    reported: tuple[tuple[str, NumberKind, Callable[[PairRow], float | None], str], ...] = (
        ("ratio", "number", lambda row: row.pair.ratio, "gradient norm over that of the base"),
        ("cosine", "cosine", lambda row: row.pair.cosine, "between both gradients"),
        (
            "difference",
            "number",
            lambda row: row.pair.relative_difference,
            "of both gradients, relative",
        ),
        ("weights", "number", lambda row: row.pair.weight_ratio, "norm over that of the base"),
    )
    for title, kind, read, hint in reported:
        values = [read(row) for row in rows]
        if any(value is not None for value in values):
            yield column(title, kind, numbers(values), hint)
    firsts = [row.pair.first_difference for row in rows]
    if any(first is not None for first in firsts):
        yield column("from step", "count", numbers(firsts), "the first in which norms differ")
    yield column("state", "text", texts(_change(row, _state) for row in rows))
    yield column("shape", "text", texts(_change(row, _shape) for row in rows))
    reasons = [row.other.reason if row.other is not None else None for row in rows]
    if any(reasons):
        yield column(f"why there is none in {other.letter}", "text", texts(reasons))


def _norm(one: SideParameter | None) -> float | None:
    return None if one is None else one.norm


def _state(one: SideParameter) -> str:
    return "non-finite" if one.nonfinite else one.reach


def _shape(one: SideParameter) -> str:
    return f"{one.shape.dtype}[{', '.join(map(str, one.shape.dims))}]"


def _change(row: PairRow, told: Callable[[SideParameter], str]) -> str:
    """Return what both sides have in common, or `before → after`."""
    parts = list(dict.fromkeys(told(one) for one in (row.base, row.other) if one is not None))
    return " → ".join(parts)


def worst_first(comparison: Comparison) -> list[ComparedParameter]:
    """Return the parameters as the table of all sides lists them."""
    return sorted(comparison.parameters, key=lambda one: one.worst)


def sides_table(comparison: Comparison) -> Chart:
    """Return the table of all sides: a norm each."""
    base = comparison.sides[0]
    rows = worst_first(comparison)
    columns: list[Json] = [
        column("parameter", "name", texts(one.name for one in rows)),
        column("worst change", "text", texts(TITLES[one.change] for one in rows)),
    ]
    columns += [
        column(f"norm {side.letter}", "number", numbers(_norm(one.sides[at]) for one in rows))
        for at, side in enumerate(comparison.sides)
    ]
    modules = ModuleIndices(base.report)
    paths = (next((s.module for s in one.sides if s is not None), None) for one in rows)
    links: dict[str, Json] = {
        "module": positions(modules.each(paths)),
        "parameter": positions(range(len(rows))),
    }
    return _table(columns, links, len(rows))
