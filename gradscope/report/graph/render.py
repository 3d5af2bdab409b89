"""A graph in one of its output formats."""

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, assert_never

from gradscope.analysis.report import Report
from gradscope.analysis.selection import modules_below
from gradscope.analysis.view import ViewOptions
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.report.graph.formats import GraphFormat
from gradscope.report.graph.module_drawings import inside_chart
from gradscope.report.graph.part import GraphOptions, graph_part
from gradscope.report.graph.vertices import GraphPart
from gradscope.report.html.columns import module_columns
from gradscope.report.html.page import Tab, render_page
from gradscope.report.html.phrasing import texts_of

if TYPE_CHECKING:
    from rich.console import Console


def render_graph_page(report: Report, module: str | None) -> str:
    """Return a self-contained page, without a last line break.

    Args:
        report: Whose graph it is.
        module: The path of the module that is open at first.

    Raises:
        GradscopeError: The module is not in the report, or there is no graph.
    """
    chart = inside_chart(report)
    if chart is None:
        raise GradscopeError("no graph to draw: no backward was recorded")
    if module:
        start = modules_below(report, ViewOptions(module=module))[0].index
        chart = replace(chart, content={**chart.content, "start": start})
    tab = Tab(
        title=report.target.name,
        texts=texts_of(report),
        charts=(replace(chart, height=720),),
        modules=module_columns(report),
    )
    return render_page([tab], f"{report.target.name} · gradscope graph")


DRAWN_NODES = 200
"""Layout programs and readers cannot handle drawings of many more nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedGraph:
    """A graph as text."""

    text: str
    """Text without a final line break."""
    folded: str | None = None
    """Description of the folded parts; None if nothing is folded."""


def render_graph(
    report: Report, graph_format: GraphFormat, options: GraphOptions, console: "Console"
) -> RenderedGraph:
    """Return the chosen part of the graph.

    Args:
        report: Whose graph it is.
        graph_format: `json` alone has the views, and no cap on the nodes unless one is asked for.
        options: What of it is wanted.
        console: Decides width, colour and characters of `text`; nothing is written to it.

    Raises:
        GradscopeError: The chosen module is not in the report.
    """
    # Each renderer is imported on demand: `svg` needs no rich, `json` no layout.
    match graph_format:
        case "text":
            from gradscope.report.graph.text import render_graph_text

            with console.capture() as capture:
                render_graph_text(report, options, console)
            return RenderedGraph(text=capture.get().rstrip("\n"))
        case "json":
            from gradscope.report.graph.languages import render_graph_json

            whole = replace(options, has_views=True, folds_repeats=False)
            part = graph_part(report, whole)
            return RenderedGraph(text=render_graph_json(report, part), folded=part.folded)
        case "html":
            return RenderedGraph(text=render_graph_page(report, options.module))
        case "dot" | "mermaid" | "svg":
            capped = replace(options, max_nodes=options.max_nodes or DRAWN_NODES)
            part = graph_part(report, capped)
            text = _drawn(graph_format, part, options.module or report.target.name)
            return RenderedGraph(text=text, folded=part.folded)
    assert_never(graph_format)


def _drawn(graph_format: Literal["dot", "mermaid", "svg"], part: GraphPart, name: str) -> str:
    match graph_format:
        case "dot":
            from gradscope.report.graph.languages import render_dot

            return render_dot(part)
        case "mermaid":
            from gradscope.report.graph.languages import render_mermaid

            return render_mermaid(part)
        case "svg":
            from gradscope.report.graph.layout import lay_out
            from gradscope.report.graph.svg import render_svg

            return render_svg(lay_out(part), name, (part.folded,) if part.folded else ())
    assert_never(graph_format)
