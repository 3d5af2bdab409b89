"""The page of a report: tabs of a step, of a run, and of its captured steps."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from gradscope.analysis.ranks.job_summary import job_summary
from gradscope.analysis.report import Report
from gradscope.analysis.training_run import CapturedStepRow, TrainingRun, verdict_on
from gradscope.analysis.view import short_location, shown_site
from gradscope.phrasing import aligned, counted, printable, short
from gradscope.recording.records import GradientStat
from gradscope.report.documents.run_phrasing import file_word
from gradscope.report.graph.module_drawings import inside_chart
from gradscope.report.html.charts.curves import curve_chart
from gradscope.report.html.charts.depth import depth
from gradscope.report.html.charts.heatmap import heatmap, two_steps
from gradscope.report.html.charts.magnitudes import magnitudes
from gradscope.report.html.charts.module_map import module_map
from gradscope.report.html.charts.other_steps import other_steps
from gradscope.report.html.charts.rank_map import rank_map, rank_tables
from gradscope.report.html.charts.timeline import timeline
from gradscope.report.html.columns import module_columns
from gradscope.report.html.page import (
    SIZE_BUDGET,
    Chart,
    Served,
    Tab,
    render_page,
    tab_size,
    within,
)
from gradscope.report.html.phrasing import (
    FindingCard,
    SummaryCell,
    SummaryTable,
    is_troubled,
    texts_of,
)
from gradscope.report.html.tables import parameter_table, run_parameter_table, tensor_table


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


def step_tab(report: Report, title: str) -> Tab:
    """Return the tab of a report without a training run."""
    return Tab(
        title=title,
        texts=texts_of(report),
        charts=shortened(tuple(step_charts(report)), report),
        modules=module_columns(report),
    )


def step_charts(report: Report) -> Iterator[Chart]:
    """Yield the charts of one step, the most important first."""
    found = (
        depth(report),
        module_map(report),
        inside_chart(report),
        magnitudes(report),
        other_steps(report),
        parameter_table(report),
        tensor_table(report),
    )
    yield from (chart for chart in found if chart is not None)


def run_tab(report: Report, run: TrainingRun, title: str) -> Tab:
    """Return the tab of a run."""
    layers = heatmap(report)
    charts = (
        curve_chart(report, run),
        rank_map(report),
        layers,
        None if layers is None else two_steps(run.step_count),
        timeline(report, run),
        _last_map(report),
        run_parameter_table(report),
    )
    return Tab(
        title=title,
        texts=replace(texts_of(report), summaries=rank_tables(report)),
        charts=shortened([chart for chart in charts if isinstance(chart, Chart)], report),
        modules=module_columns(report),
    )


def _last_map(report: Report) -> Chart | None:
    found = module_map(report)
    if found is None:
        return None
    return replace(found, caption=f"Latest measured gradients. {found.caption}")


def tab_of(report: Report, title: str | None = None) -> Tab:
    """Return the tab of a report, under its target's name or another title."""
    if report.training_run is not None:
        return run_tab(report, report.training_run, title or report.target.name)
    return step_tab(report, title or report.target.name)


_ALONE = "use gradscope report --output-format jsonl for all numbers"

_NEAR = 50
"""Number of steps from a finding up to which a captured step says something about it."""

_MOST = 6
"""Largest number of captured steps that get a tab."""


def run_tabs(report: Report, run: TrainingRun) -> list[Tab]:
    """Return the tab of a run, followed by those of its most relevant captured steps."""
    # Captured steps share what the run itself leaves of the budget.
    (whole,) = within(SIZE_BUDGET, [run_tab(report, run, report.target.name)], [0], _ALONE)
    size_budget = SIZE_BUDGET - tab_size(whole)
    found: dict[int, Tab] = {}
    for position in _by_interest(report, run)[:_MOST]:
        tab = _captured_tab(report, run, position)
        size = tab_size(tab)
        if size <= size_budget:
            found[position] = tab
            size_budget -= size
    near = set(_near_findings(report, run))
    shown = sorted(found, key=lambda position: (position not in near, position))
    if shown:
        texts = replace(
            whole.texts,
            cards=tuple(_linked(card, run, shown) for card in whole.texts.cards),
            summaries=(*whole.texts.summaries, _table(report, run, shown, near)),
        )
        whole = replace(whole, texts=texts)
    return [whole, *(found[position] for position in shown)]


def _by_interest(report: Report, run: TrainingRun) -> list[int]:
    """Return positions of captured steps: those near findings, then each line's last and first."""
    # A run may have several losses: each gets a tab.
    last = {(row.site, row.subject): position for position, row in enumerate(run.captured_steps)}
    first = {
        (row.site, row.subject): position
        for position, row in reversed(list(enumerate(run.captured_steps)))
    }
    others = reversed(range(len(run.captured_steps)))
    near = _near_findings(report, run)
    found = dict.fromkeys([*near, *last.values(), *first.values(), *others])
    # The end of a script leaves its last step without a backward pass: its tab would be empty.
    return [at for at in found if at in near or run.captured_steps[at].tensors]


def _near_findings(report: Report, run: TrainingRun) -> list[int]:
    """Return positions of the captured steps that are closest to each finding's step.

    None is near a finding without a captured step around it.
    """
    found: list[int] = []
    for step in (finding.step for finding in report.findings if finding.step is not None):
        distances = [abs(row.step - step) for row in run.captured_steps]
        closest = min(distances, default=0)
        if closest <= _NEAR:
            found += (position for position, one in enumerate(distances) if one == closest)
    return found


def _captured_tab(report: Report, run: TrainingRun, position: int) -> Tab:
    captured = report.recording.captured_steps[position]
    found = Report.from_recording(captured.recording, verdict_on(captured, report.rules))
    # A captured step belongs to one rank, also on the page of a whole job.
    job = job_summary(report.ranks[:1] or (report.recording,))
    return step_tab(replace(found, job=job), _title(run.captured_steps, position))


def _title(captured_steps: Sequence[CapturedStepRow], position: int) -> str:
    row = captured_steps[position]
    of_step = [other for other in captured_steps if other.step == row.step]
    subject = f" · {printable(row.subject)}" if len(of_step) > 1 and row.subject else ""
    return f"step {row.step:,}{subject}"


def _linked(card: FindingCard, run: TrainingRun, shown: Sequence[int]) -> FindingCard:
    """Return a finding with a link to the tab of its step, if there is one."""
    tabs = (
        at
        for at, position in enumerate(shown, start=1)
        if run.captured_steps[position].step == card.step
    )
    return replace(card, tab=next(tabs, None))


def _table(
    report: Report, run: TrainingRun, shown: Sequence[int], near: Collection[int]
) -> SummaryTable:
    """Return a table of the captured steps that have tabs, with links to these."""
    return SummaryTable(
        title="Captured steps",
        header=("step", "", "backward of", "loss", "tensors", "line"),
        rows=tuple(
            tuple(_cells(run.captured_steps[at], tab, report, is_near=at in near))
            for tab, at in enumerate(shown, start=1)
        ),
        caption=_caption(
            sum(row.tensors > 0 for row in run.captured_steps) - len(shown),
            file_word(report.recording),
        ),
    )


def _cells(
    row: CapturedStepRow, tab: int, report: Report, *, is_near: bool
) -> Iterator[SummaryCell]:
    loss = "" if row.loss is None else aligned(row.loss)
    yield SummaryCell(text=f"{row.step:,}", is_number=True, tab=tab)
    yield SummaryCell(text="near a finding" if is_near else "", style="short")
    yield SummaryCell(text=printable(row.subject), style="code")
    yield SummaryCell(text=loss, is_number=True)
    yield SummaryCell(text=f"{row.tensors:,}", is_number=True)
    line = short_location(shown_site(row.site, report.target.root))
    yield SummaryCell(text=line, style="code")


def _caption(others: int, file: str) -> str:
    text = "The gradient of every tensor was measured at these steps. Each has its own tab."
    if others <= 0:
        return text
    shown = counted(others, "more captured step")
    return f"{text} Use gradscope report {file or 'RECORDING'} --step N for {shown}."


_NO_OTHER_CONTROLS = "report this recording alone to see them"


def render_html(reports: Sequence[Report], served: Served | None = None) -> str:
    """Return a page with a tab for each report, without a last line break.

    That of one training run has tabs for its captured steps too.

    Args:
        reports: At least one.
        served: How a server keeps the page current; None for a file.
    """
    run = reports[0].training_run
    if run is not None and len(reports) == 1:
        tabs = run_tabs(reports[0], run)
    else:
        whole = [tab_of(report) for report in reports]
        tabs = (
            # A single report keeps all its charts, however large: nothing else would show them.
            within(SIZE_BUDGET, whole, [0] * len(whole), _NO_OTHER_CONTROLS)
            if len(whole) > 1
            else whole
        )
    return render_page(tabs, f"{reports[0].target.name} · gradscope", served)
