"""Ratio of each side's gradient norm to the base's, by parameter."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from gradscope.comparison.comparison import Comparison
from gradscope.comparison.parameters import Change, ComparedParameter, ParameterPair
from gradscope.comparison.side import Side, SideParameter
from gradscope.frozen import dataclass
from gradscope.report.html.charts.axes import Axis, log_axis, number, row_labels, strip_axis
from gradscope.report.html.charts.colours import (
    DIVERGING,
    Trace,
    colour_scale,
    row_axis,
    state_trace,
)
from gradscope.report.html.charts.comparison.marks import (
    PairRow,
    by_change,
    drawn,
    drawn_text,
    marks,
    worst_first,
)
from gradscope.report.html.columns import Json, ModuleIndices, numbers, positions, single_numbers
from gradscope.report.html.page import Chart

ROWS = 200
"""Maximum number of drawn parameters: those that changed most."""
_LABEL = 40
"""Maximum length of a parameter's name in characters."""
_ROW, _LOW, _HIGH = 15, 160, 900
"""Heights in pixels: of a row, and the minimum and maximum of all rows."""
_FARTHEST = 2.0
"""Powers of ten from which all ratios have the same colour."""
_SCALE = colour_scale(DIVERGING)

Row = tuple[int, ComparedParameter]
"""Parameter, as its row in the table."""

Kind = Literal["none", "0", "norm", "NaN, inf"]
KINDS: tuple[Kind, ...] = ("none", "0", "norm", "NaN, inf")
"""Kinds of positions of a norm: in a strip of its own, or on the axis."""

_STRIP, _GAP = 0.06, 0.035
_MARGIN = 0.15
"""Least margin in decades beyond the smallest and the largest norm."""
_MARGIN_SHARE = 0.03
"""Least margin as a share of the axis: the ends of a long one would cut marks in half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """A state without a ratio, with a colour of its own."""

    name: str
    color: str
    changes: tuple[Change, ...]


# The colours for missing and new are ends of this scale, so these states have other colours here.
_STATES = (
    _State(name="not finite", color="@broken", changes=("non-finite",)),
    _State(name="zero", color="@zero", changes=("zero",)),
    _State(name="no gradient", color="@accent", changes=("lost", "frozen", "missing")),
    _State(name="only here", color="@series-3", changes=("gained", "finite", "new")),
)


def compared_sides(comparison: Comparison, tolerance: float) -> Chart | None:
    """Return the chart; None without parameters."""
    rows = shown_rows(comparison)
    if not rows:
        return None
    labels = row_labels([one.name for _, one in rows], _LABEL)
    ratios = [[_ratio(pair) for pair in one.pairs[1:]] for _, one in rows]
    base = _base(comparison, rows, labels)
    traces = [_ratio_trace(base, ratios, tolerance)]
    traces += [
        _state_trace(base, rows, state) for state in _STATES if _cells(rows, _is_of(state))[1]
    ]
    height = min(max(_ROW * len(rows), _LOW), _HIGH)
    return Chart(
        name="compared-sides",
        kind="plot",
        title="All sides relative to the base",
        caption=" ".join(_caption(comparison, rows)),
        content={"figure": {"data": traces, "layout": _layout(labels)}},
        height=height + 110,
    )


def shown_rows(comparison: Comparison, most: int = ROWS) -> list[Row]:
    """Return the parameters that are drawn, in the order of the model."""
    positions = {one.name: position for position, one in enumerate(comparison.parameters)}
    worst = list(enumerate(worst_first(comparison)))[:most]
    return sorted(worst, key=lambda row: positions[row[1].name])


def _caption(comparison: Comparison, rows: Sequence[Row]) -> list[str]:
    parts = ["Gradient norm of each side relative to the base, by parameter."]
    count = len(comparison.parameters)
    if len(rows) < count:
        parts.append(f"The {len(rows):,} of {count:,} parameters that changed most.")
    return parts


def _ratio(pair: ParameterPair | None) -> float | None:
    """Return a ratio that a colour can show; None for others."""
    ratio = None if pair is None else pair.ratio
    return ratio if ratio is not None and 0 < ratio < math.inf else None


def _base(comparison: Comparison, rows: Sequence[Row], labels: Sequence[str]) -> Trace:
    modules = ModuleIndices(comparison.sides[0].report)
    paths = (next((side.module for side in one.sides if side), None) for _, one in rows)
    return {
        "type": "heatmap",
        "x": [side.letter for side in comparison.sides[1:]],
        "y": list(labels),
        "xgap": 1,
        "ygap": 1,
        "hoverongaps": False,
        "meta": {
            "rows": {
                "module": positions(modules.each(paths)),
                "parameter": positions(rank for rank, _ in rows),
            },
            "isLogarithm": True,
        },
    }


def _ratio_trace(base: Trace, ratios: Sequence[Sequence[float | None]], tolerance: float) -> Trace:
    levels = [math.log10(ratio) for line in ratios for ratio in line if ratio is not None]
    farthest = min(max([math.log10(1 + tolerance), *map(abs, levels)]), _FARTHEST)
    ticks = [share * farthest for share in (-1.0, -0.5, 0.0, 0.5, 1.0)]
    return {
        **base,
        "name": "ratio",
        "z": [
            single_numbers(None if ratio is None else math.log10(ratio) for ratio in line)
            for line in ratios
        ],
        "colorscale": _SCALE,
        "zmin": -farthest,
        "zmax": farthest,
        "colorbar": {
            "thickness": 12,
            "outlinewidth": 0,
            "tickvals": ticks,
            "ticktext": [number(10**tick) for tick in ticks],
        },
        "hovertemplate": "%{y}<br>%{x}: %{customdata:figure} times the base<extra></extra>",
    }


def _state_trace(base: Trace, rows: Sequence[Row], state: _State) -> Trace:
    lines, _ = _cells(rows, _is_of(state))
    meta = base["meta"]
    assert isinstance(meta, dict)
    held: Trace = {"rows": meta["rows"]}
    return state_trace(base, state.name, lines, state.color, held, f"%{{x}}: {state.name}")


def _is_of(state: _State) -> Callable[[ParameterPair | None], bool]:
    return lambda pair: pair is not None and pair.change in state.changes


def _cells(
    rows: Sequence[Row], holds: Callable[[ParameterPair | None], bool]
) -> tuple[list[list[bool]], bool]:
    """Return the cells with a property, and whether there are any."""
    lines = [[holds(pair) for pair in one.pairs[1:]] for _, one in rows]
    return lines, any(map(any, lines))


def _layout(labels: Sequence[str]) -> Trace:
    return {
        "showlegend": True,
        "plot_bgcolor": "@panel",
        "xaxis": {"type": "category", "side": "top", "showgrid": False},
        "yaxis": row_axis(labels),
        "margin": {"l": 60, "r": 16, "t": 12, "b": 12},
    }


def kind_of(parameter: SideParameter | None) -> Kind:
    """Return where the norm of a parameter is drawn."""
    norm = None if parameter is None else parameter.norm
    if norm is None:
        return "none"
    return "0" if norm == 0 else "norm" if math.isfinite(norm) else "NaN, inf"


def compared_norms(
    rows: Sequence[PairRow], base: Side, other: Side, tolerance: float, *, is_wide: bool
) -> Chart | None:
    """Return the chart; None if neither side has a norm."""
    # Parameters without a gradient on either side have nothing to compare.
    measured = [row for row in rows if {kind_of(row.base), kind_of(row.other)} != {"none"}]
    if not measured:
        return None
    shown = drawn(measured)
    across = _axes(shown, lambda row: row.base)
    up = _axes(shown, lambda row: row.other)
    ends = _ends(shown, tolerance)
    layout: dict[str, Json] = {
        "showlegend": True,
        "shapes": _band(ends, tolerance),
        **_norms_layout("x", across, f"gradient norm in {base.letter}", ends, _outermost("y", up)),
        **_norms_layout("y", up, f"gradient norm in {other.letter}", ends, _outermost("x", across)),
    }
    return Chart(
        name="compared-norms",
        kind="plot",
        title=f"Gradient norms: {base.letter} against {other.letter}",
        caption=_norms_caption(rows, measured, other, tolerance),
        content={"figure": {"data": list(_traces(shown, across, up)), "layout": layout}},
        is_wide=is_wide,
        height=520,
    )


def _norms_caption(
    rows: Sequence[PairRow], measured: Sequence[PairRow], other: Side, tolerance: float
) -> str:
    parts = [
        "Each mark is a parameter. On the diagonal both are equal, above it"
        f" {other.letter} is larger; the band is the tolerance of {100 * tolerance:.3g} %.",
    ]
    if any({kind_of(row.base), kind_of(row.other)} != {"norm"} for row in measured):
        parts.append("Missing, zero and non-finite norms have their own strips.")
    if len(measured) < len(rows):
        parts.append(f"{len(rows) - len(measured):,} without a gradient on both sides are omitted.")
    return " ".join([*parts, drawn_text(measured)])


def _axes(
    rows: Sequence[PairRow], side: Callable[[PairRow], SideParameter | None]
) -> dict[Kind, str]:
    """Return the numbers of the axes that are needed, as plotly counts them."""
    found = {kind_of(side(row)) for row in rows} | {"norm"}
    beside = [kind for kind in KINDS if kind in found and kind != "norm"]
    return {"norm": "", **{kind: str(position) for position, kind in enumerate(beside, start=2)}}


def _ends(rows: Sequence[PairRow], tolerance: float) -> tuple[float, float]:
    """Return the decades that both axes reach over: the band is narrow beside them."""
    norms = [
        math.log10(side.norm)
        for row in rows
        for side in (row.base, row.other)
        if side is not None and side.norm is not None and 0 < side.norm < math.inf
    ]
    if not norms:
        return -1.0, 0.0
    low, high = min(norms), max(norms)
    margin = max(_MARGIN, 2 * math.log10(1 + tolerance), _MARGIN_SHARE * (high - low))
    return low - margin, high + margin


def _outermost(letter: str, axes: Mapping[Kind, str]) -> str:
    """Return the axis at the left or at the bottom, next to which the other axes are titled."""
    return letter + next(axes[kind] for kind in KINDS if kind in axes)


def _norms_layout(
    letter: str, axes: Mapping[Kind, str], title: str, ends: tuple[float, float], anchor: str
) -> dict[str, Json]:
    shown = [kind for kind in KINDS if kind in axes]
    free = 1 - (_STRIP + _GAP) * (len(shown) - 1)
    layout: dict[str, Json] = {}
    start = 0.0
    for kind in shown:
        width = free if kind == "norm" else _STRIP
        domain = [round(start, 4), round(min(start + width, 1.0), 4)]
        start += width + _GAP
        if kind == "norm":
            axis = log_axis(title, [10**end for end in ends])
            own: Axis = {**axis, "range": list(ends), "domain": domain}
        else:
            own = {**strip_axis(kind), "domain": domain, "showline": True}
        layout[f"{letter}axis{axes[kind]}"] = {**own, "anchor": anchor}
    return layout


def _band(ends: tuple[float, float], tolerance: float) -> list[Json]:
    """Return the diagonal, and the band in which norms are within the tolerance."""
    low, high = 10 ** ends[0], 10 ** ends[1]
    up = 1 + tolerance
    path = [(low, low / up), (high, high / up), (high, high * up), (low, low * up)]
    # plotly reads a path as text, in which small norms need every digit.
    corners = " L ".join(f"{x!r},{y!r}" for x, y in path)
    return [
        {
            "type": "path",
            "path": f"M {corners} Z",
            "fillcolor": "@accent-soft",
            "line": {"width": 0},
            "layer": "below",
        },
        {
            "type": "line",
            "x0": low,
            "y0": low,
            "x1": high,
            "y1": high,
            "line": {"color": "@ink-soft", "width": 1, "dash": "dot"},
            "layer": "below",
        },
    ]


def _traces(
    rows: Sequence[PairRow],
    across: Mapping[Kind, str],
    up: Mapping[Kind, str],
) -> Iterator[Trace]:
    seen: set[Change] = set()
    for change, alike in by_change(rows):
        for x, number_x in across.items():
            for y, number_y in up.items():
                found = [row for row in alike if (kind_of(row.base), kind_of(row.other)) == (x, y)]
                if found:
                    yield {
                        **marks(found),
                        "x": _values(row.base for row in found),
                        "y": _values(row.other for row in found),
                        "xaxis": f"x{number_x}",
                        "yaxis": f"y{number_y}",
                        "showlegend": change not in seen,
                    }
                    seen.add(change)


def _values(parameters: Iterator[SideParameter | None]) -> Json:
    """Return the norms; in a strip, the middle of it."""
    return numbers(
        one.norm if one is not None and kind_of(one) == "norm" else 0.5 for one in parameters
    )
