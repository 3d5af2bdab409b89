"""A report in Markdown, for comments on pull requests."""

from collections.abc import Iterator

from gradscope.analysis.report import Report
from gradscope.analysis.rows import TensorRow
from gradscope.analysis.selection import select_parameters, select_tensors, tensors_below
from gradscope.analysis.view import ViewOptions, shown_path, shown_site
from gradscope.recording.finding import Finding
from gradscope.recording.records import Site
from gradscope.report.accumulation import TITLE, Accumulation, headline, remarks
from gradscope.report.finding_phrasing import (
    SYNTHETIC_LOSS,
    consequence_text,
    evidence_text,
    parameter_text,
    training_text,
    unjudged,
    verdict_text,
)
from gradscope.report.markdown_syntax import code, escape, fenced, prose, table
from gradscope.report.number_format import number, shape_text, tensor_text
from gradscope.report.run.markdown import run_blocks, run_summary
from gradscope.report.run.ranks_markdown import ranks_blocks
from gradscope.report.text_findings import snippets

_SKIPPED_SHOWN = 10


def render_markdown(report: Report, view: ViewOptions) -> str:
    """Return summary, findings, and tables of the parameters and tensors worth looking at."""
    run = report.training_run
    blocks = [
        f"## gradscope: {code(report.target.model if run is None else report.target.name)}",
        _summary(report) if run is None else run_summary(report, run),
        *_training(report),
        *finding_blocks(report),
        *ranks_blocks(report),
        *([] if run is None else run_blocks(report, run, view)),
        *_accumulation(report),
        *_lists(report, view),
        *_skipped(report),
    ]
    return "\n\n".join(blocks)


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


def _training(report: Report) -> list[str]:
    return [escape(f"Trained {training_text(report, '→', number)}.")] if report.training else []


def finding_blocks(report: Report) -> list[str]:
    """Return the findings, each with its code; nothing where no rule was asked to judge."""
    verdict = verdict_text(report)
    if not verdict:
        return []
    blocks = ["### Findings", verdict]
    for finding in report.findings:
        position = _position(finding.location, report)
        at = f" at {position}" if position else ""
        title = f"{finding.severity} {finding.rule} {finding.name}"
        blocks.append(f"**{title}**{at}: {prose(finding.message)}")
        shown = snippets(finding, report.recording)[:1]
        blocks += [fenced(snippet) for snippet in shown if snippet.lines]
        blocks.append("\n".join(_details(finding, report)))
    return blocks


def _details(finding: Finding, report: Report) -> Iterator[str]:
    for position in finding.related:
        where = code(f"{shown_path(position.file, report.target.root)}:{position.line}")
        yield f"- {where}: {prose(position.message)}"
    for name, text in (
        ("parameters", parameter_text(finding, report)),
        ("measured", evidence_text(finding)),
        ("explains", consequence_text(finding)),
    ):
        if text:
            yield f"- {name}: {escape(text)}"
    yield f"- **help**: {prose(finding.remedy)}"


def _position(site: Site | None, report: Report) -> str:
    return code(shown_site(site, report.target.root))


def _accumulation(report: Report) -> list[str]:
    found = Accumulation.of(report.recording)
    if found is None:
        return []
    lines = [f"- {prose(remark)}" for remark in remarks(found)]
    title = headline(found, "×")  # noqa: RUF001 - the sign of multiplication is meant
    return [f"### {TITLE}", prose(title), "\n".join(lines)]


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
            code(row.name),
            code(shape_text(row)),
            number(row.grad.norm) if row.grad else escape(row.reason or "-"),
            number(row.grad_to_weight),
            _position(row.site, report),
        )
        for group in groups
        for row in group.rows
    ]
    if not rows:
        return []
    header = ("", "parameter", "shape", "gradient norm", "gradient / weight", "line")
    folded = [f"{group.folded} more with {group.title}." for group in groups if group.folded]
    return ["### Notable parameters", table(header, rows), *folded]


def _tensors(report: Report, view: ViewOptions) -> list[str]:
    header = ("", "tensor", "shape", "gradient norm", "line")
    if view.tensors == "all":
        rows = [_tensor("", row, report) for row in tensors_below(report, view)]
        return ["### Tensors", table(header, rows)] if rows else []
    groups = select_tensors(report, view) if view.tensors == "top" else ()
    rows = [_tensor(group.title, row, report) for group in groups for row in group.rows]
    folded = [f"{group.folded} more with {group.title}." for group in groups if group.folded]
    notes = [f"The list of {group.title} is {group.note}." for group in groups if group.note]
    return ["### Notable tensors", table(header, rows), *notes, *folded] if rows else []


def _tensor(title: str, row: TensorRow, report: Report) -> tuple[str, ...]:
    return (
        title,
        code(tensor_text(row)),
        code(shape_text(row)),
        number(row.grad.norm) if row.grad else escape(row.reason or "-"),
        _position(row.site, report),
    )


def _skipped(report: Report) -> list[str]:
    return [
        *_list("Not measured", [(item.what, item.reason) for item in report.skipped]),
        *_list("Not applicable", unjudged(report.rules.skipped)),
    ]


def _list(title: str, items: list[tuple[str, str]]) -> list[str]:
    """Return the first of them under a title; nothing without any."""
    if not items:
        return []
    lines = [f"- {code(what)}: {escape(reason)}" for what, reason in items[:_SKIPPED_SHOWN]]
    if (more := len(items) - _SKIPPED_SHOWN) > 0:
        lines.append(f"- and {more} more")
    return [f"### {title}", "\n".join(lines)]
