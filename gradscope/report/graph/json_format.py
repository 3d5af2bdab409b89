"""A graph as JSON."""

import json

from gradscope.report.graph.part import GraphPart, Link, Vertex
from gradscope.report.model import Report
from gradscope.report.objects import SCHEMA_VERSION, Object, finite
from gradscope.report.paths import shown_path
from gradscope.report.rows import GraphSummary, ModuleRow


def render_graph_json(report: Report, part: GraphPart) -> str:
    """Return an object of summary, nodes, edges and modules; edges run as the forward does."""
    graph: Object = {
        "schema_version": SCHEMA_VERSION,
        "summary": {
            **_summary(report.graph),
            "folded_nodes": part.folded_nodes,
            "folded_modules": part.folded_modules,
        },
        "nodes": [_node(report, vertex) for vertex in part.vertices],
        "edges": [_edge(link) for link in part.links],
        "modules": [_module(row) for row in part.modules],
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


def _node(report: Report, vertex: Vertex) -> Object:
    single = report.recording.nodes[vertex.nodes[0]] if len(vertex.nodes) == 1 else None
    site = None if single is None or single.site is None else report.recording.sites[single.site]
    return {
        "id": vertex.index,
        "kind": vertex.kind,
        "label": vertex.label,
        "module": vertex.module,
        "nodes": len(vertex.nodes),
        "param_grad_norm": vertex.grad_norm,
        "reach": vertex.reach,
        "depth": None if single is None else single.depth,
        "file": None if site is None else shown_path(site.file, report.target.root),
        "line": None if site is None else site.line,
    }


def _edge(link: Link) -> Object:
    return {
        "source": link.source,
        "target": link.target,
        "grad_norm": link.grad_norm,
        "tensors": link.tensors,
    }


def _module(row: ModuleRow) -> Object:
    return {"id": row.index, "path": row.path, "class": row.class_name, "parent": row.parent}
