"""The report on clipping in one of the output formats."""

from typing import TYPE_CHECKING

from gradscope.analysis.clipping.clipping import Clipping
from gradscope.analysis.report import Report
from gradscope.analysis.view import ViewOptions
from gradscope.config.formats import OutputFormat
from gradscope.report.render import render_ci, together

if TYPE_CHECKING:
    from rich.console import Console


def render_clip_report(
    report: Report, output_format: OutputFormat, view: ViewOptions, console: "Console"
) -> str:
    """Return the report's text, without a last line break.

    Raises:
        GradscopeError: The recording tells nothing of clipping.
    """
    clipping = Clipping.expected_of(report.recording)
    match output_format:
        case "full":
            from gradscope.report.clipping.text import render_clipping

            with console.capture() as capture:
                render_clipping(report, clipping, view, console)
            return capture.get().rstrip("\n")
        case "concise":
            from gradscope.report.clipping.concise import render_concise

            return render_concise(report, clipping)
        case "markdown":
            from gradscope.report.clipping.markdown import render_markdown

            return render_markdown(report, clipping, view)
        case "json":
            from gradscope.report.json_format import render_json

            return render_json(report)
        case "html":
            from gradscope.report.html.clip_tab import render_clip_html

            return render_clip_html([report])
        case "jsonl":
            from gradscope.report.json_format import render_jsonl

            return render_jsonl(report)
        case _:
            return render_ci(together([report]), output_format)
