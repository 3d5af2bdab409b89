"""The line that stands for a chart while it is collapsed, as on the page of a healthy model."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from gradscope.analysis.report import Report
from gradscope.phrasing import counted, short
from gradscope.recording.records import GradientStat
from gradscope.report.html.page import Chart
from gradscope.report.html.phrasing import is_troubled


def shortened(charts: Sequence[Chart], report: Report) -> tuple[Chart, ...]:
    """Return charts with their lines; where nothing is wrong, the first alone is open."""
    is_healthy = bool(report.rules.ran) and not is_troubled(report.findings)
    return tuple(
        replace(chart, gist=gist_of(chart, report), is_open=position == 0 or not is_healthy)
        for position, chart in enumerate(charts)
    )


def gist_of(chart: Chart, report: Report) -> str:
    """Return the line on a chart of a report; empty where its title says it."""
    make = _GISTS.get(chart.name)
    return "" if make is None else make(report)


def _norms(stats: Iterable[GradientStat | None]) -> str:
    known = [stat.norm for stat in stats if stat is not None and stat.norm is not None]
    finite = [norm for norm in known if math.isfinite(norm)]
    if not finite:
        return "no finite gradient"
    return f"gradient norms from {short(min(finite))} to {short(max(finite))}"


def _tensors(report: Report) -> str:
    return _norms(row.grad for row in report.tensors)


def _parameters(report: Report) -> str:
    return _norms(row.grad for row in report.parameters)


def _modules(report: Report) -> str:
    elements = counted(report.summary.numel, "element")
    return f"{counted(len(report.modules), 'module')}, {elements} in their parameters"


def _forward(report: Report) -> str:
    nodes, edges = counted(report.graph.nodes, "node"), counted(report.graph.edges, "edge")
    return f"{nodes}, {edges}, depth {report.graph.depth:,}"


def _magnitudes(report: Report) -> str:
    return f"{counted(report.summary.parameters, 'parameter')} by powers of two"


def _other_steps(report: Report) -> str:
    losses = [report.summary.loss, *(one.loss for one in report.probes)]
    return f"loss {short(losses[0])} → {short(losses[-1])}"


def _run_steps(report: Report) -> Iterator[str]:
    run = report.training_run
    if run is None:
        return
    yield counted(run.step_count, "step")
    losses = [step.loss for step in run.steps if step.loss is not None]
    if losses:
        yield f"loss {short(losses[0])} → {short(losses[-1])}"


def _curves(report: Report) -> str:
    return ", ".join(_run_steps(report))


def _timeline(report: Report) -> str:
    run = report.training_run
    if run is None:
        return ""
    steps, kinds = counted(run.step_count, "step"), counted(len(run.patterns), "kind")
    return f"{steps} of {kinds}"


_GISTS: dict[str, Callable[[Report], str]] = {
    "depth": _tensors,
    "modules": _modules,
    "inside": _forward,
    "magnitudes": _magnitudes,
    "steps": _other_steps,
    "parameters": _parameters,
    "tensors": _tensors,
    "curves": _curves,
    "heatmap": _parameters,
    "two-steps": lambda _: "layers by the change of their gradient",
    "ranks": lambda report: counted(len(report.ranks), "rank"),
    "timeline": _timeline,
}
