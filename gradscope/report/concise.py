"""A report in single lines that begin with `file:line:`, for editors and grep."""

from collections.abc import Iterator

from gradscope.analysis.report import Report
from gradscope.analysis.rows import ParameterRow, TensorRow
from gradscope.analysis.selection import select_parameters, select_tensors, tensors_below
from gradscope.analysis.training_run import TrainingRun
from gradscope.analysis.view import ViewOptions, shown_site
from gradscope.phrasing import counted, printable
from gradscope.recording.finding import Finding
from gradscope.recording.records import Site
from gradscope.report.accumulation import Accumulation, headline
from gradscope.report.finding_phrasing import (
    guess_warning,
    parameter_counts,
    parameter_text,
    tensor_counts,
    verdict_text,
)
from gradscope.report.number_format import number, shape_text, tensor_text
from gradscope.report.run.phrasing import heading, of_each_optimizer, pattern_text, run_words
from gradscope.report.signs import in_ascii

_PATTERNS_SHOWN = 5


def render_concise(report: Report, view: ViewOptions) -> str:
    """Return a line a finding; where no rule ran, a line for each row worth looking at."""
    lines = [finding_line(finding, report) for finding in report.findings]
    run = report.training_run
    if run is not None:
        if not report.rules.ran:
            lines += (_line(report, None, f"{one.what}: {one.reason}") for one in report.skipped)
        lines += (printable(in_ascii(line)) for line in _patterns(run))
        return "\n".join([*lines, printable(in_ascii(_run_line(report, run)))])
    if view.tensors == "all":
        lines += _tensors(report, view)
    elif not (lines or report.rules.ran):
        parameters, tensors = _parameters(report, view), _tensors(report, view)
        # What is non-finite began in a tensor.
        is_broken = bool(report.summary.nonfinite_tensors)
        lines = [*tensors, *parameters] if is_broken else [*parameters, *tensors]
    if (warning := guess_warning(report.target)) is not None:
        lines.insert(0, _line(report, None, f"warning: {warning}"))
    accumulation = Accumulation.of(report.recording)
    if accumulation is not None:
        lines.append(_line(report, None, headline(accumulation, "x")))
    return "\n".join([*lines, _closing(report)])


def _patterns(run: TrainingRun) -> Iterator[str]:
    """Yield the steps' patterns, a line each, with how many steps look so."""
    for position, drawn in of_each_optimizer(run):
        of = heading(run, position)
        for pattern in drawn[:_PATTERNS_SHOWN]:
            first = "" if pattern.is_typical else f", first {pattern.first:,}"
            count = "" if position is None else f" ({counted(pattern.count, 'step')}{first})"
            yield f"{of}: {pattern_text(pattern)}{count}"
        if (more := len(drawn) - _PATTERNS_SHOWN) > 0:
            yield f"{of}: {counted(more, 'more pattern')}"


def _run_line(report: Report, run: TrainingRun) -> str:
    """Return the verdict, and how the run went."""
    words = [counted(report.summary.parameters, "parameter"), *run_words(run)]
    verdict = verdict_text(report)
    return f"{f'{verdict} ' if verdict else ''}{', '.join(words)}."


def _line(report: Report, site: Site | None, text: str) -> str:
    position = shown_site(site, report.target.root) or report.target.name
    return printable(f"{position}: {text}")


def finding_line(finding: Finding, report: Report) -> str:
    """Return `file:line: code level: message`, with the parameters concerned."""
    parameters = parameter_text(finding, report, shown=3)
    concerned = f" [{parameters}]" if parameters else ""
    text = f"{finding.rule} {finding.severity}: {finding.message}{concerned}"
    return _line(report, finding.location, text)


def _parameters(report: Report, view: ViewOptions) -> Iterator[str]:
    for group in select_parameters(report, view):
        for row in group.rows:
            yield _line(report, row.site, f"{group.title}: {row.name} {_parameter(row)}")
        if group.folded:
            yield f"{group.title}: {group.folded} more"


def _parameter(row: ParameterRow) -> str:
    words = [f"{shape_text(row)}"]
    if row.grad is not None:
        words.append(f"norm {number(row.grad.norm)}")
        words.append(f"gradient/weight {number(row.grad_to_weight)}")
    if row.reason:
        words.append(row.reason)
    return ", ".join(words)


def _tensors(report: Report, view: ViewOptions) -> Iterator[str]:
    if view.tensors == "all":
        for row in tensors_below(report, view):
            yield _line(report, row.site, f"tensor: {_tensor(row)}")
    if view.tensors != "top":
        return
    for group in select_tensors(report, view):
        for row in group.rows:
            yield _line(report, row.site, f"{group.title}: {_tensor(row)}")
        if group.folded:
            yield f"{group.title}: {group.folded} more tensors"


def _tensor(row: TensorRow) -> str:
    norm = f"norm {number(row.grad.norm)}" if row.grad else row.reason or "not measured"
    return f"{tensor_text(row)} {shape_text(row)}, {norm}"


def _closing(report: Report) -> str:
    summary, verdict = report.summary, verdict_text(report)
    return (
        f"{f'{verdict} ' if verdict else ''}{parameter_counts(report)}, {tensor_counts(report)}, "
        f"loss {number(summary.loss)}, global gradient norm {number(summary.grad_norm)}."
    )
