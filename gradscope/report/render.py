"""Reports of every kind in every format."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, assert_never

from gradscope.analysis.clipping.clipping import Clipping
from gradscope.analysis.report import Report
from gradscope.analysis.view import ViewOptions
from gradscope.check.results import CheckResult, Run, target_result
from gradscope.comparison.comparison import Comparison
from gradscope.config.formats import CIFormat, OutputFormat, is_of_ci
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.report.documents import DEFAULT_TOP

if TYPE_CHECKING:
    from rich.console import Console

    from gradscope.report.document import Build, Document, Line
    from gradscope.report.json.shape import Object

# Renderers and pages are imported on demand: `json` needs no rich, `full` no jinja2.


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The subject of a report in the forms that formats require; each is made on demand."""

    document: "Build"
    whole: "Callable[[], Object]"
    """Returns everything as one JSON object."""
    line_kinds: Mapping[str, str]
    """Kinds of the lines of `jsonl`, by key of that object."""
    page: Callable[[], str]
    """Returns the HTML page."""
    checked: Callable[[], CheckResult]
    """Returns the result of a check, for the formats of CI."""
    details: Callable[[], Iterable[str]] | None = None
    """Returns the lines of `concise` beside findings; None if the document provides them."""
    markdown: Callable[[], str] | None = None
    """Returns the Markdown text; None if the document provides it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a report is written, whatever it is of."""

    is_brief: bool = False
    """Whether the findings and what they come to are enough; formats that are read by programs and
    `html` hold everything."""
    closing: "Line" = ""
    """A sentence to end with."""


AS_IT_IS = Manner()


def rendered(
    subject: Subject, output_format: OutputFormat, console: "Console", manner: Manner = AS_IT_IS
) -> str:
    """Return a report in one of the formats, without a last line break.

    Args:
        subject: What to report on.
        output_format: One of the formats.
        console: Decides width, colour and characters of `full`; nothing is written to it.
        manner: How it is written.
    """
    match output_format:
        case "full":
            from gradscope.report.formats.text import render_text

            return render_text(_for_people(subject, manner), console)
        case "concise":
            from gradscope.report.formats.concise import render_concise

            document = _shortened(subject.document(_CONCISE_WIDTH), manner)
            details = None if manner.is_brief else subject.details
            return render_concise(document, None if details is None else details())
        case "json":
            from gradscope.report.json.shape import object_text

            return object_text(subject.whole())
        case "jsonl":
            from gradscope.report.json.shape import lines_of, lines_text

            return lines_text(lines_of(subject.whole(), subject.line_kinds))
        case "markdown":
            from gradscope.report.formats.markdown import render_markdown

            short = partial(_shorter, subject, manner)
            return (subject.markdown or partial(render_markdown, short))()
        case "html":
            return subject.page()
        case _:
            return render_ci(subject.checked(), output_format)


_CONCISE_WIDTH = 120


def _shorter(subject: Subject, manner: Manner, width: int) -> "Document":
    return _shortened(subject.document(width), manner)


def _shortened(document: "Document", manner: Manner) -> "Document":
    from gradscope.report.document import Note, brief

    shown = brief(document) if manner.is_brief else document
    further = (Note(manner.closing),) if manner.closing else ()
    return replace(shown, closing=(*shown.closing, *further))


def _for_people(subject: Subject, manner: Manner) -> "Build":
    """Return the document of a terminal, with the next command for agents."""
    from gradscope.report.document import Note, Word

    def build(width: int) -> "Document":
        document = _shorter(subject, manner, width)
        is_shown = document.shows_next or os.environ.get("AI_AGENT")
        if not (document.next_command and is_shown):
            return document
        told = Note((Word("next: ", "soft"), Word(document.next_command, "code")))
        return replace(document, closing=(*document.closing, told))

    return build


def render(
    report: Report,
    output_format: OutputFormat,
    view: ViewOptions,
    console: "Console",
    manner: Manner = AS_IT_IS,
) -> str:
    """Return a report of one step or of a run; see `rendered`."""
    from gradscope.report.concise import inspection_lines
    from gradscope.report.documents.inspection import inspection_document

    return rendered(
        _of_report(
            report,
            document=partial(inspection_document, report, view),
            details=partial(inspection_lines, report, view),
            page=_later("gradscope.report.html.report_page", "render_html", [report]),
        ),
        output_format,
        console,
        manner,
    )


def render_clip_report(
    report: Report,
    output_format: OutputFormat,
    view: ViewOptions,
    console: "Console",
    manner: Manner = AS_IT_IS,
) -> str:
    """Return the report on clipping; see `rendered`.

    Raises:
        GradscopeError: The recording tells nothing of clipping.
    """
    from gradscope.report.concise import clipping_lines
    from gradscope.report.documents.clipping import clipping_document

    clipping = Clipping.expected_of(report.recording)
    return rendered(
        _of_report(
            report,
            document=partial(clipping_document, report, clipping, view),
            details=partial(clipping_lines, report, clipping),
            page=_later("gradscope.report.html.clip_tab", "render_clip_html", [report]),
        ),
        output_format,
        console,
        manner,
    )


def _of_report(
    report: Report,
    *,
    document: "Build",
    details: Callable[[], Iterable[str]],
    page: Callable[[], str],
) -> Subject:
    from gradscope.report.json.report import LINES, report_object

    return Subject(
        document=document,
        details=details,
        whole=partial(report_object, report),
        line_kinds=LINES,
        page=page,
        checked=partial(together, [report]),
    )


def _later(module: str, name: str, *arguments: object) -> Callable[[], str]:
    """Return a call of a function whose module is imported only then."""
    return lambda: str(getattr(import_module(module), name)(*arguments))


def render_comparison(
    comparison: Comparison,
    output_format: OutputFormat,
    console: "Console",
    *,
    top: int = DEFAULT_TOP,
    manner: Manner = AS_IT_IS,
) -> str:
    """Return a comparison; see `rendered`.

    Args:
        comparison: What to render.
        output_format: One of the formats.
        console: Decides width, colour and characters of `full`.
        top: How many parameters are listed; `json`, `jsonl` and `html` hold all.
        manner: How it is written; what is still there is left out of a brief one.

    Raises:
        GradscopeError: There is no such format of a comparison.
    """
    from gradscope.report.concise import comparison_lines
    from gradscope.report.documents.comparison import comparison_document
    from gradscope.report.json.comparison import LINES, comparison_object

    if is_of_ci(output_format):
        raise GradscopeError(
            f"a comparison cannot be written as {output_format}",
            help="--output-format full, concise, json, jsonl, html or markdown",
        )
    page = _later("gradscope.report.html.comparison_page", "render_comparison_html", comparison)
    return rendered(
        Subject(
            document=partial(
                comparison_document,
                comparison,
                top=top,
                is_brief=manner.is_brief,
                lists_all=output_format == "concise",
            ),
            details=partial(comparison_lines, comparison, top=top),
            whole=partial(comparison_object, comparison),
            line_kinds=LINES,
            page=page,
            checked=partial(together, [side.report for side in comparison.sides]),
        ),
        output_format,
        console,
        manner,
    )


def render_check(
    result: CheckResult,
    output_format: OutputFormat,
    console: "Console",
    manner: Manner = AS_IT_IS,
) -> str:
    """Return the report of a check; see `rendered`.

    Args:
        result: What was found.
        output_format: One of the formats.
        console: Decides width, colour and characters of `full`.
        manner: How it is written.
    """
    from gradscope.report.documents.check import check_document
    from gradscope.report.json.check import LINES, check_object

    return rendered(
        Subject(
            document=partial(check_document, result, is_brief=output_format == "concise"),
            whole=partial(check_object, result),
            line_kinds=LINES,
            page=_later("gradscope.report.html.check_page", "render_check_html", result),
            checked=lambda: result,
            # CI limits the size of a step's summary.
            markdown=_later("gradscope.report.ci.github", "step_summary", result),
        ),
        output_format,
        console,
        manner,
    )


def render_ci(result: CheckResult, output_format: CIFormat) -> str:
    """Return the findings of a check in a format of CI, without a last line break."""
    match output_format:
        case "github":
            from gradscope.report.ci.github import render_github

            return render_github(result)
        case "gitlab":
            from gradscope.report.ci.gitlab import render_gitlab

            return render_gitlab(result)
        case "junit":
            from gradscope.report.ci.junit import render_junit

            return render_junit(result)
        case "sarif":
            from gradscope.report.ci.sarif import render_sarif

            return render_sarif(result)
    assert_never(output_format)


def together(reports: Sequence[Report]) -> CheckResult:
    """Return some reports as the result of a check that gates nothing."""
    return CheckResult(
        version=reports[0].version,
        command=reports[0].command,
        targets=tuple(
            target_result(
                report.target.name,
                # Fixes are with the report's findings alone.
                [
                    Run(
                        recording=report.recording,
                        verdict=replace(report.rules, findings=report.findings),
                        joined=report,
                    )
                ],
            )
            for report in reports
        ),
    )


def finding_lines(result: CheckResult) -> list[str]:
    """Return the findings that count, a line each, for a terminal beside a report in a file."""
    from gradscope.report.documents.check import check_document
    from gradscope.report.formats.concise import concise_findings

    return concise_findings(check_document(result, _CONCISE_WIDTH, is_brief=True))


def comparison_findings(comparison: Comparison) -> list[str]:
    """Return the findings of a comparison, a line each, likewise."""
    from gradscope.report.documents.comparison import comparison_document
    from gradscope.report.formats.concise import concise_findings

    document = comparison_document(comparison, _CONCISE_WIDTH, top=1, lists_all=True)
    return concise_findings(document)
