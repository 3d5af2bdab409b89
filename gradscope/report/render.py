"""Reports of every kind in every format."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from gradscope.report.comparison import DEFAULT_TOP

if TYPE_CHECKING:
    from rich.console import Console

    from gradscope.report.document import Build
    from gradscope.report.json.shape import Object

# Renderers and pages are imported on demand: `json` needs no rich, `full` no jinja2.


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The subject of a report in the forms that formats require; each is made on demand."""

    document: "Build"
    concise: Callable[[], str]
    """Returns one line per finding, for editors and grep."""
    whole: "Callable[[], Object]"
    """Returns everything as one JSON object."""
    line_kinds: Mapping[str, str]
    """Kinds of the lines of `jsonl`, by key of that object."""
    page: Callable[[], str]
    """Returns the HTML page."""
    checked: Callable[[], CheckResult]
    """Returns the result of a check, for the formats of CI."""
    markdown: Callable[[], str] | None = None
    """Returns the Markdown text; None if the document provides it."""


def rendered(subject: Subject, output_format: OutputFormat, console: "Console") -> str:
    """Return a report in one of the formats, without a last line break.

    Args:
        subject: What to report on.
        output_format: One of the formats.
        console: Decides width, colour and characters of `full`; nothing is written to it.
    """
    match output_format:
        case "full":
            from gradscope.report.formats.text import render_text

            return render_text(subject.document, console)
        case "concise":
            return subject.concise()
        case "json":
            from gradscope.report.json.text import object_text

            return object_text(subject.whole())
        case "jsonl":
            from gradscope.report.json.text import lines_of, lines_text

            return lines_text(lines_of(subject.whole(), subject.line_kinds))
        case "markdown":
            from gradscope.report.formats.markdown import render_markdown

            return (subject.markdown or partial(render_markdown, subject.document))()
        case "html":
            return subject.page()
        case _:
            return render_ci(subject.checked(), output_format)


def render(
    report: Report, output_format: OutputFormat, view: ViewOptions, console: "Console"
) -> str:
    """Return a report of one step or of a run; see `rendered`."""
    from gradscope.report.concise import render_concise
    from gradscope.report.inspection import inspection_document

    return rendered(
        _of_report(
            report,
            document=partial(inspection_document, report, view),
            concise=partial(render_concise, report, view),
            page=_later("gradscope.report.html.report_page", "render_html", [report]),
        ),
        output_format,
        console,
    )


def render_clip_report(
    report: Report, output_format: OutputFormat, view: ViewOptions, console: "Console"
) -> str:
    """Return the report on clipping; see `rendered`.

    Raises:
        GradscopeError: The recording tells nothing of clipping.
    """
    from gradscope.report.clipping.document import clipping_document
    from gradscope.report.concise import render_concise_clipping

    clipping = Clipping.expected_of(report.recording)
    return rendered(
        _of_report(
            report,
            document=partial(clipping_document, report, clipping, view),
            concise=partial(render_concise_clipping, report, clipping),
            page=_later("gradscope.report.html.clip_tab", "render_clip_html", [report]),
        ),
        output_format,
        console,
    )


def _of_report(
    report: Report, *, document: "Build", concise: Callable[[], str], page: Callable[[], str]
) -> Subject:
    from gradscope.report.json.report import LINES, report_object

    return Subject(
        document=document,
        concise=concise,
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
    is_brief: bool = False,
) -> str:
    """Return a comparison; see `rendered`.

    Args:
        comparison: What to render.
        output_format: One of the formats.
        console: Decides width, colour and characters of `full`.
        top: How many parameters are listed; `json`, `jsonl` and `html` hold all.
        is_brief: Whether `full` and `markdown` leave out what is still there.

    Raises:
        GradscopeError: There is no such format of a comparison.
    """
    from gradscope.report.comparison.document import comparison_document
    from gradscope.report.concise import render_concise_comparison
    from gradscope.report.json.comparison import LINES, comparison_object

    if is_of_ci(output_format):
        raise GradscopeError(
            f"a comparison cannot be written as {output_format}",
            help="--output-format full, concise, json, jsonl, html or markdown",
        )
    page = _later("gradscope.report.html.comparison_page", "render_comparison_html", comparison)
    return rendered(
        Subject(
            document=partial(comparison_document, comparison, top=top, is_brief=is_brief),
            concise=partial(render_concise_comparison, comparison, top=top),
            whole=partial(comparison_object, comparison),
            line_kinds=LINES,
            page=page,
            checked=partial(together, [side.report for side in comparison.sides]),
        ),
        output_format,
        console,
    )


def render_check(
    result: CheckResult, output_format: OutputFormat, console: "Console", *, is_brief: bool = False
) -> str:
    """Return the report of a check; see `rendered`.

    Args:
        result: What was found.
        output_format: One of the formats.
        console: Decides width, colour and characters of `full`.
        is_brief: Whether `full` leaves out which rules could not judge.
    """
    from gradscope.report.check.document import check_document
    from gradscope.report.concise import render_concise_check
    from gradscope.report.json.check import LINES, check_object

    return rendered(
        Subject(
            document=partial(check_document, result, is_brief=is_brief),
            concise=partial(render_concise_check, result),
            whole=partial(check_object, result),
            line_kinds=LINES,
            page=_later("gradscope.report.html.check_page", "render_check_html", result),
            checked=lambda: result,
            # CI limits the size of a step's summary.
            markdown=_later("gradscope.report.ci.step_summary", "step_summary", result),
        ),
        output_format,
        console,
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
                report.target.name, [Run(recording=report.recording, verdict=report.rules)]
            )
            for report in reports
        ),
    )
