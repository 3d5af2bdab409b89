"""A report in a few lines, for the interpreter and for notebooks."""

from collections.abc import Iterable, Iterator
from html import escape

from gradscope.analysis.report import Report
from gradscope.analysis.rows import ModuleRow, ParameterRow
from gradscope.analysis.view import shown_site
from gradscope.phrasing import printable
from gradscope.report.accumulation import Accumulation, headline
from gradscope.report.finding_phrasing import (
    SYNTHETIC_LOSS,
    parameter_counts,
    tensor_counts,
    verdict_text,
)
from gradscope.report.number_format import number
from gradscope.report.page import ASCII
from gradscope.report.run.phrasing import run_words

_SHOWN = 3
_FINDINGS_SHOWN = 10
_MODULES_SHOWN = 20
_MISSING_SHOWN = 10
_STYLE = "text-align:left;font-family:monospace"


def brief_text(report: Report) -> str:
    """Return the loss, the global norm, the findings and the extreme parameters in a few lines."""
    lines = [f"Report of {printable(report.target.model)}: {_headline(report)}", _counts(report)]
    lines.extend(_warnings(report))
    for title, message, position in _findings(report):
        words = [title, printable(message)] if message else [title]
        lines.append(": ".join(words) + (f" ({printable(position)})" if position else ""))
    lines.extend(filter(None, [verdict_text(report)]))
    lines.extend(map(printable, _accumulation(report)))
    for title, rows in _extremes(report):
        shown = ", ".join(f"{printable(row.name)} {_norm(row)}" for row in rows)
        lines.append(f"{title}: {shown}")
    return "\n".join(line if not position else f"  {line}" for position, line in enumerate(lines))


def brief_html(report: Report) -> str:
    """Return the same as small tables, with modules, lines, and what has no gradient."""
    head = [f"<b>{_html(report.target.model)}</b>: {_html(_headline(report))}"]
    head.append(_html(_counts(report)))
    head.extend(f"<b>{_html(line)}</b>" for line in _warnings(report))
    head.extend(_html(line) for line in [verdict_text(report), *_accumulation(report)] if line)
    extremes = [
        (row.name, _norm(row), title, shown_site(row.site, report.target.root))
        for title, extreme in _extremes(report)
        for row in extreme
    ]
    missing = [row for row in report.parameters if row.reach == "none"]
    tables = [
        _table(("finding", "", "line"), _findings(report)),
        _table(("parameter", "gradient norm", "", "line"), extremes),
        _table(("without a gradient", "why"), _missing(missing)),
        _table(("module", "class", "gradient norm", "parameters"), _modules(report.modules)),
    ]
    return f"<div><p>{'<br>'.join(head)}</p>{''.join(tables)}</div>"


def _html(text: str) -> str:
    return escape(printable(text))


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{_html(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if body else ""


def _cell(text: str) -> str:
    return f'<td style="{_STYLE}">{_html(text)}</td>'


def _missing(rows: list[ParameterRow]) -> Iterator[tuple[str, str]]:
    for row in rows[:_MISSING_SHOWN]:
        yield row.name, row.reason or ""
    if (more := len(rows) - _MISSING_SHOWN) > 0:
        yield f"{more:,} more", ""


def _modules(rows: tuple[ModuleRow, ...]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the first modules with parameters, a line each."""
    owners = [row for row in rows if row.parameters]
    for row in owners[:_MODULES_SHOWN]:
        name = row.path or "the model"
        yield name, row.class_name, number(row.grad_norm), f"{row.numel:,}"
    if (more := len(owners) - _MODULES_SHOWN) > 0:
        yield f"{more:,} more", "", "", ""


def _headline(report: Report) -> str:
    summary, run = report.summary, report.training_run
    if run is not None:
        return ", ".join(run_words(run, ASCII))
    return f"loss {number(summary.loss)}, global gradient norm {number(summary.grad_norm)}"


def _counts(report: Report) -> str:
    frozen = f"; {report.summary.frozen:,} frozen" if report.summary.frozen else ""
    of_parameters = f"{parameter_counts(report)}{frozen}"
    if report.training_run is not None:  # which keeps no tensors
        return of_parameters
    return f"{of_parameters}; {tensor_counts(report)}"


def _findings(report: Report) -> Iterator[tuple[str, str, str]]:
    """Yield what each of the worst findings is, says, and points to."""
    for finding in report.findings[:_FINDINGS_SHOWN]:
        title = f"{finding.severity} {finding.rule} {finding.name}"
        yield title, finding.message, shown_site(finding.location, report.target.root)
    if (more := len(report.findings) - _FINDINGS_SHOWN) > 0:
        yield f"{more:,} more", "", ""


def _accumulation(report: Report) -> list[str]:
    found = Accumulation.of(report.recording)
    return [] if found is None else [headline(found, "x")]


def _warnings(report: Report) -> list[str]:
    return [f"warning: {SYNTHETIC_LOSS}"] if report.target.synthetic_loss else []


def _extremes(report: Report) -> list[tuple[str, list[ParameterRow]]]:
    measured = sorted(
        (row for row in report.parameters if row.grad and row.grad.norm == row.grad.norm),
        key=lambda row: row.grad.norm if row.grad else 0.0,
        reverse=True,
    )
    if not measured:
        return []
    smallest = measured[_SHOWN:][-_SHOWN:]
    titled = [("largest", measured[:_SHOWN]), ("smallest", smallest[::-1])]
    return [(title, rows) for title, rows in titled if rows]


def _norm(row: ParameterRow) -> str:
    return number(row.grad.norm if row.grad else None)
