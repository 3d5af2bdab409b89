"""The message of a failing test: the findings that count, and a summary of the rest."""

import io
import shutil
from collections.abc import Iterator, Sequence
from textwrap import wrap

from rich.console import Console

from gradscope.analysis.report import Report
from gradscope.check.results import Failure
from gradscope.phrasing import printable
from gradscope.recording.finding import Finding
from gradscope.report.finding_phrasing import level_counts
from gradscope.report.findings import finding_block
from gradscope.report.formats.concise import finding_line
from gradscope.report.formats.text import finding_parts
from gradscope.report.number_format import figure
from gradscope.report.page import ASCII, Page, Trimmed, in_ascii
from gradscope.report.run.phrasing import run_text

_NARROWEST, _WIDEST = 60, 92
_INDENT = 8
"""Number of columns by which pytest indents."""
_IN_FULL = 3
_IN_A_LINE = 9
_CODES_IN_HEAD = 3


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
