"""A report in a few lines, for the interpreter."""

import io
from collections.abc import Iterator

from gradscope.analysis.report import Report
from gradscope.analysis.rows import ParameterRow
from gradscope.report.accumulation import Accumulation, headline
from gradscope.report.document import (
    Document,
    Findings,
    Note,
    more,
)
from gradscope.report.finding_phrasing import (
    guess_warning,
    parameter_counts,
    tensor_counts,
    verdict_text,
)
from gradscope.report.findings import finding_block
from gradscope.report.number_format import number
from gradscope.report.page import UNICODE
from gradscope.report.run.phrasing import run_text

_EXTREMES_SHOWN = 3
_FINDINGS_SHOWN = 10
_WIDTH = 100


def brief_text(report: Report) -> str:
    """Return the loss, the global norm, the findings and the extreme parameters in a few lines."""
    # Deferred: only who prints a report needs rich.
    from rich.console import Console

    from gradscope.report.formats.text import render_text

    # In a notebook, rich would display the text instead of writing it.
    console = Console(file=io.StringIO(), force_jupyter=False, width=_WIDTH, color_system=None)
    text = render_text(lambda _: _brief(report), console)
    return "\n".join(line for line in text.split("\n") if line)


def _brief(report: Report) -> Document:
    found = report.findings[:_FINDINGS_SHOWN]
    findings = Findings(
        found=tuple(finding_block(one, report, is_brief=True) for one in found),
        verdict=verdict_text(report),
        more=more(len(report.findings) - len(found), "more"),
    )
    return Document(
        program="Report of",
        subject=report.target.model,
        header=tuple(map(Note, _headlines(report))),
        blocks=(
            *([findings] if findings.found or findings.verdict else []),
            *map(Note, _extremes(report)),
        ),
        closing=(),
    )


def _headlines(report: Report) -> Iterator[str]:
    summary, run = report.summary, report.training_run
    frozen = f"; {summary.frozen:,} frozen" if summary.frozen else ""
    of_parameters = f"{parameter_counts(report)}{frozen}"
    if run is None:
        yield f"loss {number(summary.loss)}, global gradient norm {number(summary.grad_norm)}"
        yield f"{of_parameters}; {tensor_counts(report)}"
    else:  # a brief report keeps no tensors
        yield ", ".join(run_text(run))
        yield of_parameters
    if report.job is not None:
        yield report.job.title
    if (warning := guess_warning(report.target)) is not None:
        yield f"warning: {warning}"
    accumulation = Accumulation.of(report.recording)
    if accumulation is not None:
        yield headline(accumulation, UNICODE.times)


def _extremes(report: Report) -> Iterator[str]:
    for title, rows in _of_extreme_norm(report):
        yield f"{title}: {', '.join(f'{row.name} {_norm(row)}' for row in rows)}"


def _of_extreme_norm(report: Report) -> list[tuple[str, list[ParameterRow]]]:
    """Return the parameters with the largest and the smallest gradients."""
    measured = sorted(
        # NaN, which differs from itself, has no place in an order.
        (row for row in report.parameters if row.grad and row.grad.norm == row.grad.norm),
        key=lambda row: row.grad.norm if row.grad else 0.0,
        reverse=True,
    )
    # No parameter is in both lists.
    smallest = measured[_EXTREMES_SHOWN:][-_EXTREMES_SHOWN:]
    titled = (("largest", measured[:_EXTREMES_SHOWN]), ("smallest", smallest[::-1]))
    return [(title, rows) for title, rows in titled if rows]


def _norm(row: ParameterRow) -> str:
    return number(row.grad.norm if row.grad else None)
