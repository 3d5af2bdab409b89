"""A report in a few lines: for the interpreter, and as the message of a failing test."""

import io
import shutil
from collections.abc import Iterator, Sequence
from textwrap import wrap

from rich.console import Console

from gradscope.analysis.report import Report
from gradscope.analysis.rows import ParameterRow
from gradscope.check.results import Failure
from gradscope.phrasing import printable
from gradscope.recording.finding import Finding
from gradscope.report.document import (
    Document,
    Findings,
    Note,
    more,
)
from gradscope.report.documents.accumulation import Accumulation, headline
from gradscope.report.documents.run_phrasing import run_text
from gradscope.report.finding_phrasing import (
    guess_warning,
    level_counts,
    parameter_counts,
    tensor_counts,
    verdict_text,
)
from gradscope.report.findings import finding_block
from gradscope.report.formats.concise import finding_line
from gradscope.report.formats.text import finding_parts
from gradscope.report.number_format import figure, number
from gradscope.report.page import ASCII, UNICODE, Page, Trimmed, in_ascii

_EXTREMES_SHOWN = 3

_FINDINGS_SHOWN = 10

_WIDTH = 100

_NARROWEST, _WIDEST = 60, 92

_INDENT = 8
"""Number of columns by which pytest indents."""

_IN_FULL = 3

_IN_A_LINE = 9

_CODES_IN_HEAD = 3


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


def failure_text(
    report: Report,
    findings: Sequence[Finding],
    failure: Failure | None,
    columns: int | None = None,
) -> str:
    """Return the problem in one line, then the first findings in full and others in a line each.

    The signs are ASCII, which every terminal, file and report of CI can hold.

    Args:
        report: Of the model under test.
        findings: Those that fail it, the worst first.
        failure: Why nothing can be said of the gradients; None where something can.
        columns: Of the terminal; None to ask it.
    """
    width = _width(columns)
    page = Page(width=width, encoding="utf-8", signs=ASCII, root=report.target.root)
    shown = findings or (report.findings if failure else ())
    blocks = [
        [
            _head(report, findings, failure),
            _wrapped(printable(_summary(report)), width, indent=""),
            *(_wrapped(line, width) for line in _why(findings, failure)),
        ],
        *([_full(one, report, page)] for one in shown[:_IN_FULL]),
        [_wrapped(line, width) for line in _further(shown[_IN_FULL:], report)],
        [_wrapped(line, width) for line in _beside(report, shown)],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _head(report: Report, findings: Sequence[Finding], failure: Failure | None) -> str:
    model = printable(report.target.model)
    if failure is not None and not findings:
        return f"{model} could not be checked: {failure.what}"
    rules = dict.fromkeys(f"{one.rule} {one.name}" for one in findings)
    named = ", ".join(list(rules)[:_CODES_IN_HEAD])
    more = f" and {len(rules) - _CODES_IN_HEAD:,} more" if len(rules) > _CODES_IN_HEAD else ""
    return f"{named}{more} in {model}: {_levels(findings)}"


def _width(columns: int | None) -> int:
    """Return the width at which the terminal breaks no line, unless it is narrower than text is."""
    columns = columns or shutil.get_terminal_size(fallback=(_WIDEST + _INDENT, 24)).columns
    return min(max(columns - _INDENT, _NARROWEST), _WIDEST)


def _summary(report: Report) -> str:
    run = report.training_run
    if run is not None:
        return in_ascii(", ".join(run_text(run)))
    target, summary = report.target, report.summary
    parts = [f"{target.mode} mode", f"batch {target.batch}"]
    if summary.loss is not None:
        parts.append(f"loss {figure(summary.loss, ASCII)} from {target.loss}")
    if summary.grad_norm is not None:
        parts.append(f"gradient norm {figure(summary.grad_norm, ASCII)}")
    return ", ".join(parts)


def _wrapped(text: str, width: int, indent: str = "    ") -> str:
    """Return text in lines of this width; paths and other long words are not broken."""
    lines = wrap(
        text,
        width,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return "\n".join(lines)


def _why(findings: Sequence[Finding], failure: Failure | None) -> Iterator[str]:
    # Findings report the same with lines.
    if failure is not None and not findings:
        extra = (("cause", failure.cause), ("help", failure.help))
        yield from (f"{name}: {printable(' '.join(text.split()))}" for name, text in extra if text)


def _levels(findings: Sequence[Finding]) -> str:
    words = level_counts(findings)
    return " and ".join(words) if len(words) < 3 else f"{words[0]}, {words[1]} and {words[2]}"


def _full(finding: Finding, report: Report, page: Page) -> str:
    # In a notebook, rich would display the text instead of writing it.
    console = Console(file=io.StringIO(), force_jupyter=False, width=page.width, color_system=None)
    with console.capture() as capture:
        for part in finding_parts(finding_block(finding, report), page):
            console.print(Trimmed(part), end="")
    return capture.get().rstrip("\n")


def _further(findings: Sequence[Finding], report: Report) -> Iterator[str]:
    for finding in findings[:_IN_A_LINE]:
        yield in_ascii(finding_line(finding_block(finding, report)))
    if len(findings) > _IN_A_LINE:
        yield f"and {len(findings) - _IN_A_LINE:,} more: {_levels(findings[_IN_A_LINE:])}"


def _beside(report: Report, shown: Sequence[Finding]) -> Iterator[str]:
    """Yield the number of milder findings that do not count."""
    milder = report.findings[len(shown) :]
    if milder:
        rules = dict.fromkeys(f"{one.rule} {one.name}" for one in milder)
        yield f"below the fail level: {_levels(milder)} ({', '.join(rules)})"
