"""How the chart of the depth is laid out, with the marks and the loops along it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from gradscope.analysis.recording_index import RecordingIndex
from gradscope.analysis.report import Report
from gradscope.analysis.rows import ParameterRow, TensorRow
from gradscope.analysis.spine import Spines
from gradscope.frozen import dataclass
from gradscope.recording.records import TensorRef
from gradscope.report.graph.loops import Loop, loops
from gradscope.report.html.charts.axes import lettered
from gradscope.report.html.charts.forward_order import ForwardOrder, Run
from gradscope.report.html.columns import Json
from gradscope.report.number_format import operation_text

LOOP_AXIS = 40
"""Height of the axis with its title in CSS pixels."""

_NARROWEST_LOOP = 1 / 20
"""Share of the forward above which a loop has ticks."""
_MOST_TICKS = 16


State = Literal["number", "broken", "zero", "none", "frozen", "unmeasured"]
"""State of a gradient: only a finite number above zero has a position on a logarithmic axis."""


Measure = Literal["norm", "rms", "weight", "update"]
"""Measures of a gradient; only the first two apply to tensors. The others are its norm, and that of
the update, over the norm of the weight.
"""


def loop_ticks(order: ForwardOrder) -> dict[float, int]:
    """Return, by position in the forward, the steps of loops that have a tick there."""
    rows, positions = order.tensors, order.tensor_positions
    keys = [(row.module, row.operation, row.site) for row in rows]
    found: dict[float, int] = {}
    for loop in loops(keys):
        share = (positions[loop[-1].position] - positions[loop[0].position] + 1) / order.length
        if share >= _NARROWEST_LOOP:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A tensor or a parameter at its position in the forward."""

    position: int
    row: TensorRow | ParameterRow
    index: int
    """Index of the row in its table."""
    module: int | None

    @property
    def state(self) -> State:
        """What its gradient is."""
        return gradient_state(self.row)

    def value(self, measure: Measure) -> float | None:
        """Return a number that a logarithmic axis can show; None otherwise."""
        grad, found = self.row.grad, None
        match measure:
            case "norm":
                found = None if grad is None else grad.norm
            case "rms":
                found = None if grad is None else grad.rms
            case "weight" if isinstance(self.row, ParameterRow):
                found = self.row.grad_to_weight
            case "update" if isinstance(self.row, ParameterRow):
                found = self.row.update_to_weight
        return found if found and math.isfinite(found) else None


def gradient_state(row: TensorRow | ParameterRow) -> State:
    """Return the state of a row's gradient."""
    grad = row.grad
    if grad is None:
        return _absence(row)
    if grad.is_broken or not math.isfinite(grad.norm):
        return "broken"
    return "zero" if grad.norm == 0.0 else "number"


def _absence(row: TensorRow | ParameterRow) -> State:
    if isinstance(row, TensorRow):
        return "none" if row.order is None else "unmeasured"
    match row.reach:
        case "none" | "frozen":
            return row.reach
        case _:
            return "unmeasured"


def tensor_marks(report: Report, order: ForwardOrder) -> list[Mark]:
    """Return a mark for each tensor that is not a parameter under another shape."""
    indices = {(row.node, row.slot): index for index, row in enumerate(report.tensors)}
    return [
        Mark(
            position=position,
            row=row,
            index=indices[row.node, row.slot],
            module=order.module_of(row.module),
        )
        for row, position in zip(order.tensors, order.tensor_positions, strict=True)
    ]


def parameter_marks(report: Report, order: ForwardOrder) -> list[Mark]:
    """Return a mark for each parameter."""
    return [
        Mark(position=position, row=row, index=row.index, module=order.module_of(row.module))
        for row, position in zip(report.parameters, order.parameter_positions, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpineLine:
    """What vanishing and exploding gradients are judged by."""

    operation: str
    """Operation as users know it: `Add`."""
    tensors: tuple[int, ...]
    """Indices of the report's tensors, in the order of the forward."""


def spine_line(report: Report) -> SpineLine | None:
    """Return the line of a report; None where its graph has too few operations of one type."""
    indexed = RecordingIndex(report.recording)
    spines = Spines(indexed)
    reading = spines.first
    trends = [trend for trend in (reading.loss, reading.growth) if trend is not None]
    if not trends:
        return None
    steepest = max(trends, key=lambda trend: abs(trend.decades))
    operation = steepest.matched[0].node.operation
    chain = max(spines.chains(indexed.first), key=len)
    known = {TensorRef(node=row.node, slot=row.slot): at for at, row in enumerate(report.tensors)}
    refs = (
        indexed.first.measured(TensorRef(node=index, slot=0))
        for index in reversed(chain)
        if indexed.recording.nodes[index].operation == operation
    )
    found = tuple(known[ref] for ref in dict.fromkeys(refs) if ref in known)
    return SpineLine(operation=operation_text(operation), tensors=found)


MAIN, ROW, GAP, MARGIN = 320, 22, 10, 110
"""Heights in CSS pixels: of the axis, of a strip, between them, and around all."""

_NARROWEST = 1 / 60
"""Share of the axis above which a stretch has its name below it."""
_LONGEST = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Strips:
    """The strips above and below the logarithmic axis, each row with its title."""

    above: tuple[str, ...]
    """Strips above the axis, in pixels."""
    below: tuple[str, ...]
    """Strips below the axis, in pixels."""

    @property
    def height(self) -> int:
        """Height of the whole chart in CSS pixels."""
        return self._above + MAIN + self._below

    @property
    def _above(self) -> int:
        return len(self.above) * ROW + GAP if self.above else 0

    @property
    def _below(self) -> int:
        return len(self.below) * ROW + GAP if self.below else 0

    @property
    def topmost(self) -> str:
        """The vertical axis at the top of the chart."""
        return "y3" if self.above else "y"

    def axes(self) -> dict[str, Json]:
        """Return the y axes: `y` is logarithmic, `y2` below it, `y3` above."""
        low, high = self._below / self.height, (self._below + MAIN) / self.height
        axes: dict[str, Json] = {
            "yaxis": {
                "type": "log",
                "domain": [low, high],
                "exponentformat": "power",
                "zeroline": False,
            }
        }
        if self.below:
            end = low - GAP / self.height
            axes["yaxis2"] = _strip_axis(self.below, [0.0, end], is_upwards=False)
        if self.above:
            start = high + GAP / self.height
            axes["yaxis3"] = _strip_axis(self.above, [start, 1.0], is_upwards=True)
        return axes


def _strip_axis(titles: Sequence[str], domain: list[Json], *, is_upwards: bool) -> Json:
    ends = [-0.5, len(titles) - 0.5]
    return {
        "domain": domain,
        "range": ends if is_upwards else ends[::-1],
        "tickvals": list(range(len(titles))),
        "ticktext": list(titles),
        # A strip has nothing to zoom.
        "fixedrange": True,
        "zeroline": False,
        "showgrid": True,
        "gridwidth": 1,
    }


def depth_layout(
    order: ForwardOrder, report: Report, strips: Strips, ticks: Mapping[float, int]
) -> dict[str, Json]:
    """Return the layout; modules are bands behind the marks, with names at the bottom.

    Args:
        order: Positions along the chart.
        report: Whose modules are named.
        strips: Strips above and below the logarithmic axis.
        ticks: Steps of loops, by position.
    """
    top = LOOP_AXIS if ticks else 0
    runs = [run for run in order.runs() if run.module is not None]
    named = [run for run in runs if run.length >= _NARROWEST * order.length]
    return {
        # Room for its labels: plotly draws a chart again whose margins are too small.
        "margin": {"l": 70, "r": 16, "t": 42 + top, "b": 60},
        "showlegend": True,
        "legend": {"y": 1.0 + top / strips.height},
        **strips.axes(),
        **({"xaxis2": loop_axis(ticks, strips.topmost)} if ticks else {}),
        "xaxis": {
            "range": [-0.8, order.length - 0.2],
            "anchor": "y2" if strips.below else "y",
            "showgrid": False,
            "zeroline": False,
            "tickvals": [(run.first + run.last) / 2 for run in named],
            "ticktext": [run_name(run, report) for run in named],
            # Otherwise, a name at the end that is turned is left out.
            "ticklabeloverflow": "allow",
            "title": {"text": "forward: from the input to the loss →"},
        },
        # Every second stretch has a band, so that neighbours differ.
        "shapes": [_band(run) for run in runs[::2]],
    }


def run_name(run: Run, report: Report) -> str:
    """Return the end of a module's path, from its last part that is not a number."""
    if run.module is None:
        return ""
    row = report.modules[run.module]
    parts = row.path.split(".")
    start = len(parts) - 1
    while start > 0 and parts[start].isdecimal():
        start -= 1
    return lettered(".".join(parts[start:]) or row.class_name, _LONGEST)


def _band(run: Run) -> Json:
    return {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": run.first - 0.5,
        "x1": run.last + 0.5,
        "y0": 0,
        "y1": 1,
        "fillcolor": "@panel",
        "line": {"width": 0},
        "layer": "below",
    }
