"""A graph in one of its output formats."""

from dataclasses import dataclass, replace
from typing import Literal, assert_never

from rich.console import Console

from gradscope.report.graph.dot import render_dot
from gradscope.report.graph.json_format import render_graph_json
from gradscope.report.graph.mermaid import render_mermaid
from gradscope.report.graph.part import GraphOptions, graph_part
from gradscope.report.graph.text import render_graph_text
from gradscope.report.model import Report

GraphFormat = Literal["text", "dot", "mermaid", "json"]

DRAWN_NODES = 200
"""Layout programs and readers give up on drawings of many more nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedGraph:
    """A graph as text."""

    text: str
    """Without a last line break."""
    folded: str | None
    """What had to be folded, in words."""


def render_graph(
    report: Report, graph_format: GraphFormat, options: GraphOptions, console: Console
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
    if graph_format == "text":
        with console.capture() as capture:
            render_graph_text(report, options, console)
        return RenderedGraph(text=capture.get().rstrip("\n"), folded=None)
    if graph_format == "json":
        part = graph_part(report, replace(options, has_views=True))
        return RenderedGraph(text=render_graph_json(report, part), folded=part.folded)
    capped = replace(options, max_nodes=options.max_nodes or DRAWN_NODES)
    part = graph_part(report, capped)
    match graph_format:
        case "dot":
            return RenderedGraph(text=render_dot(part), folded=part.folded)
        case "mermaid":
            return RenderedGraph(text=render_mermaid(part), folded=part.folded)
    assert_never(graph_format)
