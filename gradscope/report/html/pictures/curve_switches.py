"""Other ways to show the curves of a run: on other scales, of one optimizer, by time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gradscope.analysis.training_run import TrainingRun
from gradscope.report.html.columns import Json, single_numbers
from gradscope.report.html.pictures.step_marks import StepMark

Trace = Mapping[str, Json]

MARGIN = 0.012
"""On both sides, as a share of an axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTrace:
    """What a trace draws."""

    steps: tuple[int, ...]
    """Of its marks."""
    optimizer: str = ""
    """Whose steps these are; empty where that is not told."""


def switches(
    run: TrainingRun,
    drawn: Sequence[DrawnTrace],
    layout: Trace,
    findings: Iterable[StepMark],
) -> list[Json]:
    """Return the rows of buttons over a figure of panels with one axis of steps."""
    seconds = {step.step: step.seconds for step in run.steps if step.seconds is not None}
    found: list[Json] = [_scales(layout), *_optimizers(drawn)]
    if len(seconds) > 1:
        found.append(_axes(seconds, drawn, findings))
    return found


def step_line(step: float | None, color: str) -> Trace:
    """Return a line across all panels."""
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": step,
        "x1": step,
        "y0": 0,
        "y1": 1,
        "layer": "below",
        "line": {"color": color, "width": 1},
        "opacity": 0.5,
    }


def _scales(layout: Trace) -> Trace:
    """Return buttons that have every panel on one scale."""
    panels = [name for name, axis in layout.items() if isinstance(axis, Mapping) and "type" in axis]
    choices: list[Json] = [{"label": "as suits each"}]
    for label, scale in (("logarithmic", "log"), ("linear", "linear")):
        # What was zoomed on one scale is somewhere else on the other.
        patch: Trace = {"type": scale, "uirevision": scale}
        choices.append({"label": label, "layout": dict.fromkeys(panels, patch)})
    return {"label": "scale", "choices": choices}


def _optimizers(drawn: Sequence[DrawnTrace]) -> Iterator[Trace]:
    """Yield buttons that show the curves of one optimizer, where there are several."""
    names = list(dict.fromkeys(trace.optimizer for trace in drawn if trace.optimizer))
    if len(names) < 2:
        return
    choices: list[Json] = [{"label": "all"}]
    for name in names:
        shown = [{"visible": trace.optimizer in ("", name)} for trace in drawn]
        choices.append({"label": name, "data": shown})
    yield {"label": "optimizer", "choices": choices}


def _axes(
    seconds: Mapping[int, float], drawn: Sequence[DrawnTrace], findings: Iterable[StepMark]
) -> Trace:
    known = [(mark, seconds[mark.step]) for mark in findings if mark.step in seconds]
    start, end = min(seconds.values()), max(seconds.values())
    margin = (end - start) * MARGIN
    by_time: Trace = {
        "label": "seconds",
        "data": [{"x": single_numbers(map(seconds.get, trace.steps))} for trace in drawn],
        "layout": {
            "xaxis": {
                "title": {"text": "seconds since the run began"},
                "uirevision": "seconds",
                "range": [start - margin, end + margin],
                "tickformat": "",
                "tickmode": "auto",
                "hoverformat": ".4~g",
            },
            "shapes": [step_line(at, mark.color) for mark, at in known],
            # What is selected is a step, and has no place on this axis.
            "meta": {"stepAxes": []},
        },
    }
    return {"label": "over", "choices": [{"label": "steps"}, by_time]}
