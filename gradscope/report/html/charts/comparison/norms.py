"""Gradient norms of one side against those of the base, one mark per parameter."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from gradscope.comparison.parameters import Change
from gradscope.comparison.side import Side, SideParameter
from gradscope.report.html.charts.axes import Axis, log_axis, strip_axis
from gradscope.report.html.charts.comparison.marks import (
    PairRow,
    by_change,
    drawn,
    drawn_text,
    marks,
)
from gradscope.report.html.columns import Json, numbers
from gradscope.report.html.page import Chart

Kind = Literal["none", "0", "norm", "NaN, inf"]
KINDS: tuple[Kind, ...] = ("none", "0", "norm", "NaN, inf")
"""Kinds of positions of a norm: in a strip of its own, or on the axis."""

_STRIP, _GAP = 0.06, 0.035
_MARGIN = 0.15
"""Least margin in decades beyond the smallest and the largest norm."""
_MARGIN_SHARE = 0.03
"""Least margin as a share of the axis: the ends of a long one would cut marks in half."""

Trace = dict[str, Json]


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
        **_layout("x", across, f"gradient norm in {base.letter}", ends, _outermost("y", up)),
        **_layout("y", up, f"gradient norm in {other.letter}", ends, _outermost("x", across)),
    }
    return Chart(
        name="compared-norms",
        kind="plot",
        title=f"Gradient norms: {base.letter} against {other.letter}",
        caption=_caption(rows, measured, other, tolerance),
        content={"figure": {"data": list(_traces(shown, across, up)), "layout": layout}},
        is_wide=is_wide,
        height=520,
    )


def _caption(
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


def _layout(
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
