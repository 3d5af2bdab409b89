"""A report in Markdown, for comments on pull requests."""

import re
from collections.abc import Iterable, Iterator

from gradscope.recording.finding import Finding
from gradscope.recording.records import Site
from gradscope.report.finding_words import (
    consequence_text,
    evidence_text,
    parameter_text,
    unjudged,
    verdict_text,
)
from gradscope.report.model import Report
from gradscope.report.names import printable, shape_text, tensor_text
from gradscope.report.notes import SYNTHETIC_LOSS
from gradscope.report.numbers import number
from gradscope.report.paths import shown_path, shown_site
from gradscope.report.rows import TensorRow
from gradscope.report.selection import select_parameters, select_tensors, tensors_below
from gradscope.report.snippets import Snippet, snippets
from gradscope.report.view import ViewOptions

_PLAIN = re.compile(r"[\w.:/ ,=()\[\]+-]+", re.ASCII)
_ACTIVE = re.compile(r"[^\w\s.,:;()/=+'\"-]|_")
_BACKTICKS = re.compile("`+")
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
                (summary.unknown, "not measured"),
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
    verdict = verdict_text(report)
    if not verdict:
        return []
    blocks = ["### Findings", verdict]
    for finding in report.findings:
        place = _place(finding.location, report)
        at = f" at {place}" if place else ""
        title = f"{finding.severity} {finding.rule} {finding.name}"
        blocks.append(f"**{title}**{at}: {_escape(finding.message)}")
        blocks += [_fenced(snippet) for snippet in snippets(finding, report.recording)[:1]]
        blocks.append("\n".join(_details(finding, report)))
    return blocks


def _details(finding: Finding, report: Report) -> Iterator[str]:
    for place in finding.related:
        where = _code(f"{shown_path(place.file, report.target.root)}:{place.line}")
        yield f"- {where}: {_escape(place.message)}"
    for name, text in (
        ("parameters", parameter_text(finding, report)),
        ("measured", evidence_text(finding)),
        ("explains", consequence_text(finding)),
    ):
        if text:
            yield f"- {name}: {_escape(text)}"
    yield f"- **help**: {_escape(finding.remedy)}"


def _fenced(snippet: Snippet) -> str:
    """Return lines of code, a mark before the one meant, in a fence longer than any in them."""
    lines = [
        f"{'>' if line.number == snippet.line else ' '} {line.number} {printable(line.text)}"
        for line in snippet.lines
    ]
    runs = _BACKTICKS.findall("\n".join(lines))
    fence = "`" * max(3, 1 + max(map(len, runs), default=0))
    return "\n".join([f"{fence}python", *lines, fence])


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
    return [
        *_list("Not measured", [(item.what, item.reason) for item in report.skipped]),
        *_list("Not judged", unjudged(report)),
    ]


def _list(title: str, items: list[tuple[str, str]]) -> list[str]:
    """Return the first of them under a title; nothing without any."""
    if not items:
        return []
    lines = [f"- {_code(what)}: {_escape(reason)}" for what, reason in items[:_SKIPPED_SHOWN]]
    if (more := len(items) - _SKIPPED_SHOWN) > 0:
        lines.append(f"- and {more} more")
    return [f"### {title}", "\n".join(lines)]
