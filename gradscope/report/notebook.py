"""A report in a few lines, for the interpreter and for notebooks."""

from html import escape

from gradscope.report.model import Report
from gradscope.report.names import printable
from gradscope.report.numbers import number
from gradscope.report.rows import ParameterRow

_SHOWN = 3
_STYLE = "text-align:left;font-family:monospace"


def brief_text(report: Report) -> str:
    """Return the model, the loss, the global norm and the extreme parameters in a few lines."""
    lines = [f"Report of {printable(report.target.model)}: {_headline(report)}", _counts(report)]
    for title, rows in _extremes(report):
        shown = ", ".join(f"{printable(row.name)} {_norm(row)}" for row in rows)
        lines.append(f"{title}: {shown}")
    return "\n".join(line if not place else f"  {line}" for place, line in enumerate(lines))


def brief_html(report: Report) -> str:
    """Return the same as a small table."""
    rows = "".join(
        f'<tr><td style="{_STYLE}">{escape(printable(row.name))}</td><td>{_norm(row)}</td>'
        f"<td>{escape(title)}</td></tr>"
        for title, extreme in _extremes(report)
        for row in extreme
    )
    return (
        f"<div><p><b>{escape(printable(report.target.model))}</b>: {escape(_headline(report))}<br>"
        f"{escape(_counts(report))}</p><table><thead><tr><th>parameter</th>"
        f"<th>gradient norm</th><th></th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _headline(report: Report) -> str:
    summary = report.summary
    return f"loss {number(summary.loss)}, global gradient norm {number(summary.grad_norm)}"


def _counts(report: Report) -> str:
    summary = report.summary
    return (
        f"{summary.parameters} parameters: {summary.reached} with a gradient, "
        f"{summary.zero} zero, {summary.none} none, {summary.frozen} frozen; "
        f"{summary.tensors} tensors; {len(report.findings)} findings"
    )


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
