"""Makes a part of a graph small enough to be drawn, by leaving out its middle."""

from dataclasses import replace

from gradscope.analysis.folding import Span, span
from gradscope.phrasing import counted
from gradscope.report.graph.vertices import GraphPart, Link, Vertex


def shortened_part(part: GraphPart, most: int) -> GraphPart:
    """Return the part with so many vertices at most: of more, those in the middle are one.

    Only for parts without boxes.
    """
    if len(part.vertices) <= most:
        return part
    ports = [vertex for vertex in part.vertices if vertex.kind == "outside"]
    inner = [vertex for vertex in part.vertices if vertex.kind != "outside"]
    kept = max(most - 1 - len(ports), 2)
    head, tail = kept - kept // 2, kept // 2
    middle = inner[head : len(inner) - tail]
    rest = _rest(middle)
    vertices = [*inner[:head], rest, *inner[len(inner) - tail :], *ports]
    places = {vertex.index: place for place, vertex in enumerate(vertices)}
    places |= {vertex.index: head for vertex in middle}
    return GraphPart(
        vertices=tuple(replace(vertex, index=place) for place, vertex in enumerate(vertices)),
        links=_moved(part, places),
        folded_nodes=len(rest.nodes),
        folded_modules=sum(vertex.kind == "module" for vertex in middle),
    )


def _rest(middle: list[Vertex]) -> Vertex:
    return Vertex(
        index=middle[0].index,
        kind="rest",
        label=f"… {len(middle):,} more",
        detail=counted(sum(len(vertex.nodes) for vertex in middle), "node"),
        nodes=tuple(node for vertex in middle for node in vertex.nodes),
    )


def _moved(part: GraphPart, places: dict[int, int]) -> tuple[Link, ...]:
    """Return the links between what is left; of several that became one, the range of norms."""
    links: dict[tuple[int, int, str], list[Link]] = {}
    for link in part.links:
        source, target = places[link.source], places[link.target]
        if source != target:
            links.setdefault((source, target, link.kind), []).append(link)
    return tuple(
        replace(
            found[0],
            source=source,
            target=target,
            norms=_range(found),
            tensors=sum(link.tensors for link in found),
        )
        for (source, target, _), found in sorted(links.items())
    )


def _range(links: list[Link]) -> Span | None:
    return span(end for link in links if link.norms for end in (link.norms.low, link.norms.high))
