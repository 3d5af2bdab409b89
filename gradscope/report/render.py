"""A report in one of the output formats."""

from typing import TYPE_CHECKING, Literal, assert_never

from gradscope.report.model import Report
from gradscope.report.view import ViewOptions

if TYPE_CHECKING:
    from rich.console import Console

OutputFormat = Literal["full", "concise", "json", "jsonl", "markdown"]


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
            from gradscope.report.jsonl_format import render_jsonl

            return render_jsonl(report)
        case "markdown":
            from gradscope.report.markdown import render_markdown

            return render_markdown(report, view)
    assert_never(output_format)
