"""A report in Markdown, for comments on pull requests."""

import re
from collections.abc import Iterable

from gradscope.recording.records import Site
from gradscope.report.model import Report
from gradscope.report.names import printable, shape_text, tensor_text
from gradscope.report.notes import SYNTHETIC_LOSS
from gradscope.report.numbers import number
from gradscope.report.paths import shown_site
from gradscope.report.rows import TensorRow
from gradscope.report.selection import select_parameters, select_tensors, tensors_below
from gradscope.report.view import ViewOptions

_PLAIN = re.compile(r"[\w.:/ ,=()\[\]+-]+", re.ASCII)
_ACTIVE = re.compile(r"[^\w\s.,:;()/=+'\"-]|_")
_SKIPPED_SHOWN = 10


def render_markdown(report: Report, view: ViewOptions) -> str:
    """Return summary, findings, and tables of the parameters and tensors worth looking at."""
    blocks = [
        f"## gradscope: {_code(report.target.model)}",
        _summary(report),
        *_findings(report),
        *_lists(report, view),
        *_skipped(report),
    ]
    return "\n\n".join(blocks)


def _code(text: str) -> str:
    """Return text in code type.

    Inside a code span, nothing can escape a backtick, nor a pipe everywhere: such text is spelled
    in character references.
    """
    text = printable(text)
    if _PLAIN.fullmatch(text):
        return f"`{text}`"
    return f"<code>{_escape(text)}</code>" if text else ""


def _escape(text: str) -> str:
    """Return text in which Markdown and HTML find nothing to act on, mentions included."""
    return _ACTIVE.sub(lambda sign: f"&#{ord(sign[0])};", printable(text))


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = tuple(header)
    lines = [titles, ("---",) * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _summary(report: Report) -> str:
    summary = report.summary
    counts = [
        f"**{summary.parameters:,}** parameters",
        f"{summary.reached} with a gradient",
        *(
            f"{count} {what}"
            for count, what in (
                (summary.zero, "zero"),
                (summary.none, "without"),
                (summary.frozen, "frozen"),
                (summary.nonfinite_parameters, "non-finite"),
            )
            if count
        ),
        f"**{summary.tensors:,}** tensors",
    ]
    loss = f"Loss **{number(summary.loss)}**"
    if report.target.synthetic_loss:
        loss += f" (**warning**: {SYNTHETIC_LOSS})"
    norm = f"global gradient norm **{number(summary.grad_norm)}**"
    return f"{loss}, {norm}. {', '.join(counts)}."


def _findings(report: Report) -> list[str]:
    if not report.findings:
        return []
    rows = [
        (
            finding.severity,
            f"{finding.rule} {finding.name}",
            _escape(finding.message),
            _place(finding.location, report),
            _escape(finding.remedy),
        )
        for finding in report.findings
    ]
    return ["### Findings", _table(("", "rule", "what", "line", "remedy"), rows)]


def _place(site: Site | None, report: Report) -> str:
    return _code(shown_site(site, report.target.root))


def _lists(report: Report, view: ViewOptions) -> list[str]:
    parameters, tensors = _parameters(report, view), _tensors(report, view)
    # What is non-finite began in a tensor.
    is_broken = bool(report.summary.nonfinite_tensors)
    return [*tensors, *parameters] if is_broken else [*parameters, *tensors]


def _parameters(report: Report, view: ViewOptions) -> list[str]:
    groups = select_parameters(report, view)
    rows = [
        (
            group.title,
            _code(row.name),
            _code(shape_text(row)),
            number(row.grad.norm) if row.grad else _escape(row.reason or "-"),
            number(row.grad_to_weight),
            _place(row.site, report),
        )
        for group in groups
        for row in group.rows
    ]
    if not rows:
        return []
    header = ("", "parameter", "shape", "gradient norm", "gradient / weight", "line")
    folded = [f"{group.folded} more with {group.title}." for group in groups if group.folded]
    return ["### Parameters worth looking at", _table(header, rows), *folded]


def _tensors(report: Report, view: ViewOptions) -> list[str]:
    header = ("", "tensor", "shape", "gradient norm", "line")
    if view.tensors == "all":
        rows = [_tensor("", row, report) for row in tensors_below(report, view)]
        return ["### Tensors", _table(header, rows)] if rows else []
    groups = select_tensors(report, view) if view.tensors == "top" else ()
    rows = [_tensor(group.title, row, report) for group in groups for row in group.rows]
    folded = [f"{group.folded} more with {group.title}." for group in groups if group.folded]
    notes = [f"The list of {group.title} is {group.note}." for group in groups if group.note]
    return ["### Tensors worth looking at", _table(header, rows), *notes, *folded] if rows else []


def _tensor(title: str, row: TensorRow, report: Report) -> tuple[str, ...]:
    return (
        title,
        _code(tensor_text(row)),
        _code(shape_text(row)),
        number(row.grad.norm) if row.grad else _escape(row.reason or "-"),
        _place(row.site, report),
    )


def _skipped(report: Report) -> list[str]:
    if not report.skipped:
        return []
    shown = report.skipped[:_SKIPPED_SHOWN]
    lines = [f"- {_code(item.what)}: {_escape(item.reason)}" for item in shown]
    if more := len(report.skipped) - len(shown):
        lines.append(f"- and {more} more")
    return ["### Not measured", "\n".join(lines)]
