"""The report on clipping in Markdown."""

from collections.abc import Iterator

from gradscope.analysis.clipping.clipping import Clipping
from gradscope.analysis.clipping.contributions import Contribution
from gradscope.analysis.clipping.sections import Section
from gradscope.analysis.report import Report
from gradscope.analysis.view import ViewOptions, shown_site
from gradscope.phrasing import counted
from gradscope.report.clipping.phrasing import (
    METHODS,
    advice_text,
    cut_text,
    direction_text,
    exchange_text,
    headline,
    measured_text,
    norm_name,
    percent,
    rate_text,
    remarks,
    spread_words,
)
from gradscope.report.markdown import finding_blocks
from gradscope.report.markdown_syntax import code, escape, prose, table
from gradscope.report.number_format import number
from gradscope.report.page import UNICODE


def render_markdown(report: Report, clipping: Clipping, view: ViewOptions) -> str:
    """Return findings, and tables for each line that clips."""
    blocks = [f"## gradscope clip-report: {code(report.target.name)}"]
    if clipping.trial is not None:
        blocks.append(f"Measured {escape(measured_text(clipping.trial, clipping.sections[0]))}.")
    blocks += finding_blocks(report)
    for section in clipping.sections:
        blocks += _section(section, report, view)
    return "\n\n".join(blocks)


def _section(section: Section, report: Report, view: ViewOptions) -> Iterator[str]:
    yield _title(section, report)
    if points := list(_points(section)):
        yield "\n".join(f"- {point}" for point in points)
    if section.norms is not None:
        words = list(spread_words(section.norms, UNICODE))
        of = f"{norm_name(section).capitalize()} before clipping, of "
        yield f"{of}{counted(section.norms.count, 'step')}:"
        yield table([name for name, _ in words], [[value for _, value in words]])
    yield from _limits(section)
    for kind, rows, shown in (
        ("module", section.contributions.modules, view.top),
        ("parameter", section.contributions.parameters, 2 * view.top),
    ):
        if rows:
            yield f"Mean share of the {section.contributions.power}, by {kind}:"
            yield _contributions(kind, rows[:shown])
    if section.methods:
        yield "Comparison of methods on the same gradients:"
        yield _methods(section)


def _title(section: Section, report: Report) -> str:
    if section.method is None:
        return f"### Nothing clips the gradients of {code(section.words)}"
    position = code(shown_site(section.site, report.target.root))
    beside = (
        ", the recommended limit" if section.is_advised else f" at {position}" if position else ""
    )
    return f"### {code(section.words)}{beside}"


def _points(section: Section) -> Iterator[str]:
    if section.method is not None:
        yield f"**clipped**: {escape(cut_text(section, UNICODE))}"
    for name, text in (
        ("direction", direction_text(section, UNICODE)),
        ("rate", rate_text(section, UNICODE)),
    ):
        if text:
            yield f"**{name}**: {escape(text)}"
    for check in section.checks:
        yield f"**{'ok' if check.is_right else 'not right'}**: {escape(check.words)}"
    for text in (headline(section), *remarks(section)):
        if text:
            yield prose(text)


def _limits(section: Section) -> Iterator[str]:
    if not section.sweep:
        return
    header = ("max_norm", "", "steps clipped", "mean coefficient", "of clipped steps")
    rows = [
        (f"{row.limit:g}", row.mark, percent(row.share), number(row.mean), number(row.mean_cut))
        for row in section.sweep
    ]
    yield table(header, rows)
    if section.advice is not None:
        texts = (*advice_text(section.advice, UNICODE), exchange_text(section, UNICODE))
        yield escape(" ".join(f"{text}." for text in texts if text))


def _contributions(kind: str, rows: tuple[Contribution, ...]) -> str:
    header = (kind, "share", "max", "median norm", "after")
    return table(
        header,
        [
            (
                code(row.name or "the model itself"),
                percent(row.share),
                percent(row.largest),
                number(row.before),
                number(row.after),
            )
            for row in rows
        ],
    )


def _methods(section: Section) -> str:
    header = (
        "method",
        "limit",
        "steps clipped",
        "norm after",
        "coefficient",
        "cosine",
        "min cosine",
    )
    return table(
        header,
        [
            (
                METHODS[row.method],
                f"{row.limit:g}",
                percent(row.share),
                number(row.after),
                number(row.coefficient),
                number(row.cosine),
                number(row.worst),
            )
            for row in section.methods
        ],
    )
