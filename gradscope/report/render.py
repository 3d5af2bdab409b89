"""A report in one of the output formats."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

from gradscope.analysis.report import Report
from gradscope.analysis.view import ViewOptions
from gradscope.check.merging import target_result
from gradscope.check.results import CheckResult, Run
from gradscope.config.formats import CIFormat, OutputFormat

if TYPE_CHECKING:
    from rich.console import Console


def render(
    report: Report, output_format: OutputFormat, view: ViewOptions, console: "Console"
) -> str:
    """Return the report's text, without a last line break.

    Args:
        report: What to render.
        output_format: One of the formats.
        view: What of it to show.
        console: Decides width, colour and characters of `full`; nothing is written to it.
    """
    # A renderer is imported when it is asked for: `json` needs no rich.
    match output_format:
        case "full":
            from gradscope.report.text import render_text

            with console.capture() as capture:
                render_text(report, view, console)
            return capture.get().rstrip("\n")
        case "concise":
            from gradscope.report.concise import render_concise

            return render_concise(report, view)
        case "json":
            from gradscope.report.json_format import render_json

            return render_json(report)
        case "jsonl":
            from gradscope.report.json_format import render_jsonl

            return render_jsonl(report)
        case "markdown":
            from gradscope.report.markdown import render_markdown

            return render_markdown(report, view)
        case "html":
            from gradscope.report.html.render import render_html

            return render_html([report])
        case _:
            return render_ci(together([report]), output_format)


def render_ci(result: CheckResult, output_format: CIFormat) -> str:
    """Return what a check found in a format of CI, without a last line break."""
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
