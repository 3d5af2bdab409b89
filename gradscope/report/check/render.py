"""A check in one of the output formats."""

from typing import TYPE_CHECKING

from gradscope.check.results import CheckResult
from gradscope.config.formats import OutputFormat
from gradscope.report.render import render_ci

if TYPE_CHECKING:
    from rich.console import Console


def render_check(
    result: CheckResult, output_format: OutputFormat, console: "Console", *, is_brief: bool = False
) -> str:
    """Return the report of a check, without a last line break.

    Args:
        result: What was found.
        output_format: One of the formats.
        console: Decides width, colour and characters of `full`; nothing is written to it.
        is_brief: Whether `full` leaves out which rules could not judge.
    """
    # A renderer is imported when it is asked for: `json` needs no rich.
    match output_format:
        case "full":
            from gradscope.report.check.text import render_text

            with console.capture() as capture:
                render_text(result, console, is_brief=is_brief)
            return capture.get().rstrip("\n")
        case "concise":
            from gradscope.report.check.concise import render_concise

            return render_concise(result)
        case "json":
            from gradscope.report.check.json_format import render_json

            return render_json(result)
        case "jsonl":
            from gradscope.report.check.json_format import render_jsonl

            return render_jsonl(result)
        case "html":
            from gradscope.report.html.check_page import render_check_html

            return render_check_html(result)
        case "markdown":
            from gradscope.report.ci.step_summary import step_summary

            return step_summary(result)
        case _:
            return render_ci(result, output_format)
