"""A graph as JSON."""

import json

from gradscope.analysis.report import Report
from gradscope.analysis.rows import GraphSummary
from gradscope.analysis.view import shown_path
from gradscope.report.graph.tensor_links import SCISSORS
from gradscope.report.graph.vertices import Box, GraphPart, Link, Vertex
from gradscope.report.json_objects import SCHEMA_VERSION, Object, finite


def render_graph_json(report: Report, part: GraphPart) -> str:
    """Return an object of summary, nodes, edges and modules; edges run as the forward does."""
    graph: Object = {
        "schema_version": SCHEMA_VERSION,
        "summary": {
            **_summary(report.graph),
            "folded_nodes": part.folded_nodes,
            "folded_modules": part.folded_modules,
        },
        "nodes": [_node(report, part, vertex) for vertex in part.vertices if vertex.kind != "cut"],
        "edges": [_edge(link) for link in part.links if link.kind != "cut"],
        "cuts": [_cut(part, vertex) for vertex in part.vertices if vertex.kind == "cut"],
        "modules": [_module(report, box) for box in part.boxes],
    }
    return json.dumps(finite(graph), indent=2, ensure_ascii=False, allow_nan=False)


def _summary(graph: GraphSummary) -> Object:
    return {
        "nodes": graph.nodes,
        "edges": graph.edges,
        "depth": graph.depth,
        "leaves": graph.leaves,
        "views": graph.views,
        "widest": None
        if graph.widest is None
        else {"depth": graph.widest.depth, "nodes": graph.widest.nodes},
        "operations": dict(graph.operations),
        "parameters_by_depth": [
            {"depth": depth, "parameters": count} for depth, count in graph.parameters_by_depth
        ],
    }


def _node(report: Report, part: GraphPart, vertex: Vertex) -> Object:
    single = report.recording.nodes[vertex.nodes[0]] if len(vertex.nodes) == 1 else None
    site = None if single is None or single.site is None else report.recording.sites[single.site]
    return {
        "id": vertex.index,
        "kind": vertex.kind,
        "label": f"{vertex.label} {vertex.class_name}".strip(),
        "module": None if vertex.box is None else part.boxes[vertex.box].modules[0],
        "nodes": len(vertex.nodes),
        "param_grad_norm": vertex.grad_norm,
        "reach": vertex.reach,
        "depth": None if single is None else single.depth,
        "file": None if site is None else shown_path(site.file, report.target.root),
        "line": None if site is None else site.line,
        "is_cut_off": vertex.is_behind_cut,
    }


def _edge(link: Link) -> Object:
    return {
        "source": link.source,
        "target": link.target,
        "grad_norm": link.grad_norm,
        "tensors": link.tensors,
    }


def _cut(part: GraphPart, vertex: Vertex) -> Object:
    """Return a line that cuts a gradient off, with the nodes before it and those after it."""
    return {
        "id": vertex.index,
        "label": vertex.label.removeprefix(SCISSORS).strip(),
        "place": vertex.position or None,
        "sources": [link.source for link in part.links if link.target == vertex.index],
        "targets": [link.target for link in part.links if link.source == vertex.index],
    }


def _module(report: Report, box: Box) -> Object:
    row = report.modules[box.modules[0]]
    return {"id": row.index, "path": row.path, "class": row.class_name, "parent": row.parent}
