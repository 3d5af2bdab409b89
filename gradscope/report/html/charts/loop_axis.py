"""The steps of unrolled loops as an axis of their own along the forward."""

import math
from collections.abc import Iterator, Mapping, Sequence

from gradscope.report.graph.loops import Loop, loops
from gradscope.report.html.charts.forward_order import ForwardOrder
from gradscope.report.html.columns import Json

LOOP_AXIS = 40
"""Height of the axis with its title in CSS pixels."""

_NARROWEST = 1 / 20
"""Share of the forward above which a loop has ticks."""
_MOST_TICKS = 16


def loop_ticks(order: ForwardOrder) -> dict[float, int]:
    """Return, by position in the forward, the steps of loops that have a tick there."""
    rows, positions = order.tensors, order.tensor_positions
    keys = [(row.module, row.operation, row.site) for row in rows]
    found: dict[float, int] = {}
    for loop in loops(keys):
        share = (positions[loop[-1].position] - positions[loop[0].position] + 1) / order.length
        if share >= _NARROWEST:
            found.update(_ticks(loop, positions, share))
    return found


def _ticks(loop: Loop, positions: Sequence[int], share: float) -> Iterator[tuple[float, int]]:
    """Yield the middle of every Nth turn and its number."""
    turns: dict[int, list[int]] = {}
    for entry in loop:
        turns.setdefault(entry.turn, []).append(positions[entry.position])
    every = _spacing(len(turns), max(2, math.floor(share * _MOST_TICKS)))
    for turn, found in turns.items():
        if turn % every == 0:
            yield (found[0] + found[-1]) / 2, turn


def _spacing(turns: int, ticks: int) -> int:
    """Return a round number of turns from one tick to the next."""
    least = turns / ticks
    # A tick is at a whole turn.
    power: int = 10 ** max(0, math.floor(math.log10(least)))
    return next(power * one for one in (1, 2, 5, 10) if power * one >= least)


def loop_axis(ticks: Mapping[float, int], anchor: str) -> dict[str, Json]:
    """Return the layout of the axis `x2`, at the top of the chart.

    Args:
        ticks: As `loop_ticks` returns them.
        anchor: Topmost vertical axis of the chart.
    """
    return {
        "matches": "x",
        "side": "top",
        "anchor": anchor,
        "tickvals": list(ticks),
        "ticktext": [f"{turn:,}" for turn in ticks.values()],
        "ticks": "outside",
        "showgrid": False,
        "zeroline": False,
        "title": {"text": "step of the loop"},
    }


def loop_axis_trace(anchor: str) -> dict[str, Json]:
    """Return a trace without marks: plotly draws no axis without one."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [None],
        "y": [None],
        "xaxis": "x2",
        "yaxis": anchor,
        "hoverinfo": "skip",
        "showlegend": False,
    }
