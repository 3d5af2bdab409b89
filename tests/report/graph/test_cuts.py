"""A line that cuts the gradient off is drawn as such, in every format."""

import json
from io import StringIO

import pytest
import torch
from lxml import etree
from rich.console import Console
from torch import nn

from gradscope.report.graph.languages import render_dot, render_mermaid
from gradscope.report.graph.layout import lay_out
from gradscope.report.graph.module_drawings import WHOLE, module_drawings
from gradscope.report.graph.part import GraphOptions, graph_part
from gradscope.report.graph.render import render_graph
from gradscope.session.api import inspect


class Cut(nn.Module):
    def __init__(self, cut):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        self.head = nn.Linear(4, 1)
        self.cut = cut

    def forward(self, x):
        return self.head(self.cut(self.encoder(x)))


def report_of(cut):
    torch.manual_seed(0)
    model, batch = Cut(cut), torch.randn(3, 4)
    return inspect(model, batch, lambda out: out.square().mean(), probe_steps=0)


@pytest.fixture(scope="module")
def report():
    return report_of(lambda hidden: hidden.detach())


@pytest.fixture(scope="module")
def part(report):
    return graph_part(report, GraphOptions(folds_repeats=True))


def cut_vertex(part):
    (found,) = (vertex for vertex in part.vertices if vertex.kind == "cut")
    return found


def test_the_cut_leads_from_what_is_cut_off_to_where_it_joins(part):
    cut = cut_vertex(part)
    assert cut.label == "✂ detach()"
    assert cut.detail.startswith("tests/report/graph/test_cuts.py:")
    (before,) = (link for link in part.links if link.target == cut.index)
    (after,) = (link for link in part.links if link.source == cut.index)
    # All of the encoder is cut off: it is one source.
    assert part.boxes[before.box].name == "encoder"
    assert part.vertices[after.target].label == "AddmmBackward0"
    assert part.boxes[part.vertices[after.target].box].name == "head"
    assert {before.kind, after.kind} == {"cut"}
    assert before.norms is after.norms is None


def test_parameters_behind_it_are_marked_and_no_others(part):
    behind = {vertex.label for vertex in part.vertices if vertex.is_behind_cut}
    assert behind == {f"encoder.{n}.{name}" for n in (0, 2) for name in ("weight", "bias")}


def test_every_drawing_shows_it(report, part):
    position = cut_vertex(part).detail
    dot, mermaid = render_dot(part), render_mermaid(part)
    assert f'label="✂ detach(), {position}", shape=octagon' in dot
    assert "ltail=cluster_" in dot
    assert dot.count("style=dashed, color=") == 2
    assert f"#9986; detach(), {position}" in mermaid
    assert mermaid.count("-.->") == 2
    assert "classDef cut" in mermaid
    svg = render_graph(report, "svg", GraphOptions(folds_repeats=True), Console(file=StringIO()))
    words = [text.text for text in etree.fromstring(svg.text.encode()).iter("{*}text")]
    assert {"✂ detach()", position, "cut off"} <= set(words)


def test_json_lists_it_apart(report):
    text = render_graph(report, "json", GraphOptions(), Console(file=StringIO())).text
    graph = json.loads(text)
    (cut,) = graph["cuts"]
    names = {node["id"]: node["label"] for node in graph["nodes"]}
    assert cut["label"] == "detach()"
    assert "AddmmBackward0" in {names[target] for target in cut["targets"]}
    assert names[cut["sources"][0]].startswith("encoder.")
    assert len(graph["edges"]) == report.graph.edges


def test_the_inside_of_the_model_shows_it(report):
    drawings = module_drawings(report)
    model = drawings[0]
    labels = [placed.vertex.label for placed in model.vertices]
    cut = labels.index("✂ detach()")
    assert {
        (labels[one.link.source], labels[one.link.target])
        for one in model.links
        if one.link.kind == "cut"
    } == {("encoder", "✂ detach()"), ("✂ detach()", "head")}
    assert model.vertices[labels.index("encoder")].vertex.is_behind_cut
    assert model.vertices[labels.index("encoder")].frame.bottom < model.vertices[cut].frame.y
    # Seen from inside, what is cut off leads out, and does not come back.
    encoder = next(
        one
        for one in drawings.values()
        if "encoder.0" in {placed.vertex.label for placed in one.vertices}
    )
    assert {one.link.kind for one in encoder.links} == {"cut"}
    assert not any(placed.vertex.kind == "cut" for placed in drawings[WHOLE].vertices)


def test_modules_that_are_cut_off_stand_in_their_order(part):
    frames = {placed.box.name: placed.frame for placed in lay_out(part).boxes}
    assert frames["0"].bottom < frames["2"].y


def test_what_goes_on_without_a_cut_has_none():
    part = graph_part(report_of(lambda hidden: hidden * 2), GraphOptions())
    assert not any(vertex.kind == "cut" or vertex.is_behind_cut for vertex in part.vertices)
    assert {link.kind for link in part.links} == {"gradient"}


def test_a_cut_that_leads_nowhere_is_drawn_without_an_end():
    part = graph_part(
        report_of(lambda hidden: torch.full((3, 4), hidden.sum().item())), GraphOptions()
    )
    cut = cut_vertex(part)
    assert any(link.target == cut.index for link in part.links)
    assert lay_out(part).vertices[cut.index].vertex == cut
