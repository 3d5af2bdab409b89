"""Tables of the parameters that are compared, the worst first."""

from collections.abc import Callable, Iterator, Sequence

from gradscope.comparison.comparison import Comparison
from gradscope.comparison.parameters import ComparedParameter
from gradscope.comparison.side import Side, SideParameter
from gradscope.report.comparison.words import TITLES
from gradscope.report.html.columns import Json, numbers, places, texts
from gradscope.report.html.comparison_pairs import PairRow
from gradscope.report.html.module_places import ModulePlaces
from gradscope.report.html.picture import Picture
from gradscope.report.html.pictures.compared_marks import TABLE
from gradscope.report.html.tables import NumberKind, column

_ROW = 26
_HEIGHT = 480


def pair_table(rows: Sequence[PairRow], sides: tuple[Side, Side]) -> Picture:
    """Return the table of two sides."""
    ordered = sorted(rows, key=lambda row: row.rank)
    columns = list(_columns(ordered, sides))
    links: dict[str, Json] = {
        "module": places(row.module for row in ordered),
        "parameter": places(row.rank for row in ordered),
    }
    return _table(columns, links, len(ordered))


def _table(columns: Sequence[Json], links: dict[str, Json], count: int) -> Picture:
    return Picture(
        name=TABLE,
        kind="table",
        title=f"Parameters ({count:,})",
        caption="Those that changed most are the first. A heading sorts, a row selects its layer.",
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
    told: tuple[tuple[str, NumberKind, Callable[[PairRow], float | None], str], ...] = (
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
    for title, kind, read, hint in told:
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
    words = list(dict.fromkeys(told(one) for one in (row.base, row.other) if one is not None))
    return " → ".join(words)


def worst_first(comparison: Comparison) -> list[ComparedParameter]:
    """Return the parameters as the table of all sides lists them."""
    return sorted(comparison.parameters, key=lambda one: one.worst)


def sides_table(comparison: Comparison) -> Picture:
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
    modules = ModulePlaces(base.report)
    paths = (next((s.module for s in one.sides if s is not None), None) for one in rows)
    links: dict[str, Json] = {
        "module": places(modules.each(paths)),
        "parameter": places(range(len(rows))),
    }
    return _table(columns, links, len(rows))
