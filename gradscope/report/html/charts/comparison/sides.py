"""Ratio of each side's gradient norm to the base's, by parameter."""

import math
from collections.abc import Callable, Sequence

from gradscope.comparison.comparison import Comparison
from gradscope.comparison.parameters import Change, ComparedParameter, ParameterPair
from gradscope.frozen import dataclass
from gradscope.report.html.charts.axes import number, row_labels
from gradscope.report.html.charts.colours import (
    DIVERGING,
    Trace,
    colour_scale,
    row_axis,
    state_trace,
)
from gradscope.report.html.charts.comparison.marks import worst_first
from gradscope.report.html.columns import ModuleIndices, positions, single_numbers
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
