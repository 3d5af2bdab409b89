"""DOT, Mermaid, JSON and text: valid, whatever the names."""

import io
import json
import re
import shutil
import subprocess
from xml.etree import ElementTree

import pytest
from rich.console import Console

from gradscope.report.graph.languages import render_dot, render_mermaid
from gradscope.report.graph.part import GraphOptions, graph_part
from gradscope.report.graph.render import render_graph

NAMES = [
    'quote"',
    "[/x]",
    "<script>alert(1)</script>",
    "new\nline",
    "back\\slash",
    "&amp;",
    "`end`",
]
NAMES += ["\x1b[31m", "#35;", "name]", "100%", "ünïcode", "\\"]

TOKEN = re.compile(r'\s+|//[^\n]*|"(?:[^"\\\n]|\\.)*"|->|[A-Za-z_][\w]*|[\d.]+|[{}\[\]=;,]')
MERMAID = re.compile(
    r'flowchart TB|%% .*|end|subgraph m\d+\["[^"`<>\\]*"\]'
    r'|n\d+(\["[^"`<>\\]*"\]|\(\["[^"`<>\\]*"\]\)|\[\["[^"`<>\\]*"\]\])'
    r'|n\d+ -->\|"[^"`<>\\]*"\| n\d+'
)


def rendered(report, graph_format, width=100, **options):
    console = Console(file=io.StringIO(), width=width, color_system=None, markup=False)
    return render_graph(report, graph_format, GraphOptions(**options), console).text


def tokens(dot):
    position, found = 0, []
    while position < len(dot):
        match = TOKEN.match(dot, position)
        assert match, dot[position : position + 40]
        found.append(match[0])
        position = match.end()
    return found


@pytest.mark.parametrize("name", NAMES)
def test_dot_has_only_whole_tokens_and_closed_brackets(name, named_report):
    found = tokens(render_dot(graph_part(named_report(name), GraphOptions())))
    assert found.count("{") == found.count("}")
    assert found.count("[") == found.count("]")


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz's `dot` is not installed")
def test_graphviz_shows_the_names_as_they_are(named_report):
    for name in NAMES:
        dot = render_dot(graph_part(named_report(name), GraphOptions()))
        done = subprocess.run(["dot", "-Tsvg"], input=dot, capture_output=True, text=True)
        assert done.returncode == 0
        assert done.stderr == ""
        texts = [text.text for text in ElementTree.fromstring(done.stdout).iter() if text.text]
        shown = name if name.isprintable() else name.encode("unicode_escape").decode()
        assert f"{shown} Linear" in texts


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz's `dot` is not installed")
@pytest.mark.parametrize("options", [{}, {"depth": 1}, {"max_nodes": 5}, {"module": "blocks.1"}])
def test_graphviz_draws_every_vertex_and_edge(options, report):
    part = graph_part(report, GraphOptions(**options))
    done = subprocess.run(
        ["dot", "-Tplain"], input=render_dot(part), capture_output=True, text=True, check=True
    )
    lines = [line.split()[0] for line in done.stdout.splitlines()]
    assert lines.count("node") == len(part.vertices)
    assert lines.count("edge") == len(part.links)


@pytest.mark.parametrize("name", NAMES)
def test_mermaid_has_only_lines_of_its_grammar(name, named_report):
    lines = render_mermaid(graph_part(named_report(name), GraphOptions())).splitlines()
    for line in lines:
        assert MERMAID.fullmatch(line.strip()), line
    opened = sum(line.strip().startswith("subgraph ") for line in lines)
    assert opened == sum(line.strip() == "end" for line in lines)


def test_mermaid_escapes_what_it_would_read(named_report):
    text = render_mermaid(graph_part(named_report('a"<b>#'), GraphOptions()))
    assert "a#quot;#lt;b#gt;#35; Linear" in text


def test_direction_of_the_edges_is_said(report):
    for graph_format in ("dot", "mermaid"):
        assert "forward direction" in rendered(report, graph_format)


def test_json_has_the_whole_graph(report):
    graph = json.loads(rendered(report, "json"))
    assert list(graph) == ["schema_version", "summary", "nodes", "edges", "cuts", "modules"]
    assert sum(node["nodes"] for node in graph["nodes"]) == report.graph.nodes
    assert len(graph["edges"]) == report.graph.edges == graph["summary"]["edges"]
    ids = {node["id"] for node in graph["nodes"]}
    assert all({edge["source"], edge["target"]} <= ids for edge in graph["edges"])
    modules = {module["id"] for module in graph["modules"]}
    assert all(node["module"] in modules | {None} for node in graph["nodes"])


def test_json_spells_numbers_that_are_not_finite(broken_report):
    text = rendered(broken_report, "json")
    graph = json.loads(text, parse_constant=lambda word: pytest.fail(f"bare {word}"))
    assert "NaN" in {edge["grad_norm"] for edge in graph["edges"]}


def test_text_folds_equal_blocks_and_counts_operations(report):
    text = rendered(report, "text")
    assert re.search(r"blocks\.\[0-2\] .3 Block +\S+ +Relu, Add", text)
    assert re.search(r"linear Linear +\S+ +Addmm", text)


def test_text_marks_what_backward_does_not_reach(report):
    text = rendered(report, "text")
    assert re.search(r"unused Linear +— +not called; no gradient: weight, bias", text)
    assert re.search(r"head Linear .*frozen: bias", text)


def test_text_ends_with_the_statistics(report):
    text = rendered(report, "text")
    graph = report.graph
    assert f"{graph.nodes} nodes, {graph.edges} edges, depth {graph.depth}" in text
    assert "AccumulateGrad 13" in text


@pytest.mark.parametrize("width", [60, 80, 140])
@pytest.mark.parametrize("name", NAMES)
def test_text_obeys_no_name_and_keeps_its_width(width, name, named_report):
    text = rendered(named_report(name), "text", width)
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert max(map(len, text.splitlines())) <= width
