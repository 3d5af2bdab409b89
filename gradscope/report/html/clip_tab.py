"""The page of a report on clipping: a tab for each line that clips."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gradscope.analysis.clipping.clipping import Clipping
from gradscope.analysis.clipping.sections import MethodRow, Section
from gradscope.analysis.report import Report
from gradscope.analysis.view import shown_site
from gradscope.phrasing import short
from gradscope.report.document import Fact
from gradscope.report.documents.clipping_phrasing import (
    METHODS,
    cut_text,
    direction_text,
    measured_text,
    nonfinite_text,
    rate_text,
    remarks,
)
from gradscope.report.html.charts.axes import number
from gradscope.report.html.charts.clip_limits import limit_chart, norm_chart
from gradscope.report.html.charts.clip_shares import share_chart, share_table
from gradscope.report.html.charts.clip_steps import step_chart
from gradscope.report.html.columns import module_columns
from gradscope.report.html.page import Tab, render_page
from gradscope.report.html.phrasing import PageTexts, SummaryCell, SummaryTable, texts_of
from gradscope.report.number_format import percent


def render_clip_html(reports: Sequence[Report]) -> str:
    """Return a page with a tab for each line that clips, without a last line break.

    Raises:
        GradscopeError: A recording tells nothing of clipping.
    """
    tabs = [tab for report in reports for tab in clip_tabs(report)]
    return render_page(tabs, f"{reports[0].target.name} · gradscope clip-report")


def clip_tabs(report: Report) -> Iterator[Tab]:
    """Yield a tab for each line that clips; if none does, for each optimizer.

    Raises:
        GradscopeError: The recording tells nothing of clipping.
    """
    clipping = Clipping.expected_of(report.recording)
    for section in clipping.sections:
        others = [one for one in clipping.sections if one is not section]
        charts = (
            step_chart(section),
            norm_chart(section),
            limit_chart(section),
            share_chart(section, report),
            share_table(section, report),
        )
        yield Tab(
            title=_title(section, report, is_alone=not others),
            texts=_texts(section, _of_section(report, others), clipping),
            charts=tuple(chart for chart in charts if chart is not None),
            modules=module_columns(report),
        )


def _title(section: Section, report: Report, *, is_alone: bool) -> str:
    if is_alone:
        return report.target.name
    return shown_site(section.site, report.target.root) or section.text


def _of_section(report: Report, others: Sequence[Section]) -> Report:
    """Return the report without the findings about other lines that clip."""
    elsewhere = {section.site for section in others if section.site is not None}
    mine = tuple(one for one in report.findings if one.location not in elsewhere)
    return replace(report, findings=mine)


def _texts(section: Section, report: Report, clipping: Clipping) -> PageTexts:
    texts = texts_of(report)
    broken = nonfinite_text(section)
    return replace(
        texts,
        facts=(*_facts(section, report, clipping), *texts.facts),
        warnings=(*texts.warnings, *([f"{broken}."] if broken else [])),
        summaries=(_methods(section.methods),) if section.methods else (),
    )


def _facts(section: Section, report: Report, clipping: Clipping) -> Iterator[Fact]:
    position = shown_site(section.site, report.target.root) if section.method is not None else ""
    reported = (
        ("measured", "" if clipping.trial is None else measured_text(clipping.trial, section)),
        ("clip", _clip_text(section)),
        ("line", position),
        ("cut", "" if section.method is None else cut_text(section)),
        ("direction", direction_text(section)),
        ("rate", rate_text(section)),
        # It stands among the warnings already.
        *(("note", text) for text in remarks(section) if text != nonfinite_text(section)),
        *(("right" if check.is_right else "wrong", check.text) for check in section.checks),
    )
    return (Fact(name, text) for name, text in reported if text)


def _clip_text(section: Section) -> str:
    if section.method is None:
        return f"nothing clips the gradients of {section.text}"
    if section.is_advised:
        return f"{section.text}, the recommended limit"
    return section.text


def _methods(rows: Sequence[MethodRow]) -> SummaryTable:
    header = (
        "method",
        "limit",
        "steps clipped",
        "norm after",
        "coefficient",
        "cosine",
        "min cosine",
    )
    return SummaryTable(
        title="Comparison of methods on the same gradients",
        header=header,
        rows=tuple(
            (
                SummaryCell(text=METHODS[row.method], is_strong=row.is_asked),
                *(
                    SummaryCell(text=text, is_number=True)
                    for text in (
                        short(row.limit),
                        percent(row.share),
                        number(row.after),
                        number(row.coefficient),
                        number(row.cosine),
                        number(row.worst),
                    )
                ),
            )
            for row in rows
        ),
    )
