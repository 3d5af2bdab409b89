"""A comparison in one of the output formats."""

from typing import TYPE_CHECKING

from gradscope.comparison.comparison import Comparison
from gradscope.config.formats import OutputFormat
from gradscope.errors import GradscopeError
from gradscope.report.comparison import DEFAULT_TOP

if TYPE_CHECKING:
    from rich.console import Console


def render_comparison(
    comparison: Comparison,
    output_format: OutputFormat,
    console: "Console",
    *,
    top: int = DEFAULT_TOP,
    is_brief: bool = False,
) -> str:
    """Return the text of a comparison, without a last line break.

    Args:
        comparison: What to render.
        output_format: One of the formats.
        console: Decides width, colour and characters of `full`; nothing is written to it.
        top: How many parameters are listed; `json`, `jsonl` and `html` hold all.
        is_brief: Whether `full` leaves out what is still there.

    Raises:
        GradscopeError: There is no such format of a comparison.
    """
    # A renderer is imported when it is asked for: `json` needs no rich.
    match output_format:
        case "full":
            from gradscope.report.comparison.text import render_text

            with console.capture() as capture:
                render_text(comparison, console, top=top, is_brief=is_brief)
            return capture.get().rstrip("\n")
        case "concise":
            from gradscope.report.comparison.concise import render_concise

            return render_concise(comparison, top=top)
        case "json":
            from gradscope.report.comparison.json_format import render_json

            return render_json(comparison)
        case "jsonl":
            from gradscope.report.comparison.json_format import render_jsonl

            return render_jsonl(comparison)
        case "markdown":
            from gradscope.report.comparison.markdown import render_markdown

            return render_markdown(comparison, top=top)
        case "html":
            from gradscope.report.html.comparison_page import render_comparison_html

            return render_comparison_html(comparison)
        case _:
            raise GradscopeError(
                f"a comparison cannot be written as {output_format}",
                help="--output-format full, concise, json, jsonl, html or markdown",
            )
