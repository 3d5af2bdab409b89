"""How the picture of the depth is laid out: a logarithmic axis, and strips above and below it."""

from collections.abc import Sequence
from dataclasses import dataclass

from gradscope.analysis.report import Report
from gradscope.report.html.columns import Json
from gradscope.report.html.pictures.forward_order import ForwardOrder, Run
from gradscope.report.html.pictures.lettering import lettered

MAIN, ROW, GAP, MARGIN = 320, 22, 10, 110
"""Heights in CSS pixels: of the axis, of a strip, between them, and around all."""

_NARROWEST = 1 / 60
"""A stretch has its name written under it from this share of the axis on."""
_LONGEST = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Strips:
    """What lies above and below the logarithmic axis, each row with its title."""

    above: tuple[str, ...]
    """From the axis upwards."""
    below: tuple[str, ...]
    """From the axis downwards."""

    @property
    def height(self) -> int:
        """Of all, in CSS pixels."""
        return self._above + MAIN + self._below

    @property
    def _above(self) -> int:
        return len(self.above) * ROW + GAP if self.above else 0

    @property
    def _below(self) -> int:
        return len(self.below) * ROW + GAP if self.below else 0

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
        "fixedrange": True,
        "zeroline": False,
        "showgrid": True,
        "gridwidth": 1,
    }


def depth_layout(order: ForwardOrder, report: Report, strips: Strips) -> dict[str, Json]:
    """Return the layout; modules are bands behind the marks, named at the foot."""
    runs = [run for run in order.runs() if run.module is not None]
    named = [run for run in runs if run.length >= _NARROWEST * order.length]
    return {
        "margin": {"l": 60, "r": 16, "t": 30, "b": 60},
        "showlegend": True,
        "legend": {"y": 1.0},
        **strips.axes(),
        "xaxis": {
            "range": [-0.8, order.length - 0.2],
            "anchor": "y2" if strips.below else "y",
            "showgrid": False,
            "zeroline": False,
            "tickvals": [(run.first + run.last) / 2 for run in named],
            "ticktext": [run_name(run, report) for run in named],
            "title": {"text": "forward: from the input to the loss →"},
        },
        "shapes": [_band(run) for run in runs[::2]],
    }


def run_name(run: Run, report: Report) -> str:
    """Return the end of a module's path: from the last part on that is no number."""
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
