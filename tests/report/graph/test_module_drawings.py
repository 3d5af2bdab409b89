"""The inside of every module, one level deep, against the recording."""

import time
from collections import Counter

import pytest
import torch
from torch import nn

from gradscope.report.graph.drawing_columns import drawing_columns
from gradscope.report.graph.labels import vertex_text
from gradscope.report.graph.module_drawings import WHOLE, module_drawings
from gradscope.report.page import UNICODE
from gradscope.session.api import inspect
from tests.report.html.figures import plain


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(4, 4)

    def forward(self, x):
        for _ in range(30):
            x = torch.tanh(self.cell(x)) + 1
        return x


class Aperiodic(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x)
        for number in range(300):
            # The sequence of Thue and Morse, which repeats nothing three times.
            x = torch.sin(x) if number.bit_count() % 2 else torch.cos(x)
        return x


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(6))

    def forward(self, x):
        for block in self.blocks:
            x = x + torch.tanh(block(x))
        return x


@pytest.fixture(scope="module")
def drawings(report):
    return module_drawings(report)


def vertices(drawing):
    return [placed.vertex for placed in drawing.vertices]


def named(report, path):
    return next(row.index for row in report.modules if row.path == path)


def test_each_operation_and_parameter_is_in_one_drawing(report, drawings):
    everywhere = [vertex for drawing in drawings.values() for vertex in vertices(drawing)]
    operations = Counter(
        node for vertex in everywhere if vertex.kind == "operation" for node in vertex.nodes
    )
    nodes = {node.index for node in report.recording.nodes if node.kind == "operation"}
    assert operations == Counter(nodes)
    parameters = [one for vertex in everywhere for one in vertex.parameters]
    assert sorted(parameters) == [row.index for row in report.parameters]


def test_modules_are_one_vertex_each_in_the_one_around_them(report, drawings):
    model = drawings[0]
    labels = [vertex.label for vertex in vertices(model) if vertex.kind == "module"]
    # Those that a list holds are in place of the list; the last was not called.
    assert labels == ["blocks.0", "blocks.1", "blocks.2", "head", "unused"]
    listed = drawings[named(report, "blocks")]
    assert [one.label for one in vertices(listed) if one.kind == "module"] == labels[:3]


def test_links_between_modules_have_the_norms_at_their_ends(report, drawings):
    rows = {row.path: row for row in report.modules}
    model = drawings[0]
    at = {vertex.label: vertex.index for vertex in vertices(model)}
    (found,) = (
        one.link
        for one in model.links
        if (one.link.source, one.link.target) == (at["blocks.0"], at["blocks.1"])
    )
    assert found.grad_norm == rows["blocks.0"].calls[0].output_grad_norm


def test_what_lies_around_a_module_is_before_and_after_it(report, drawings):
    block = drawings[named(report, "blocks.1")]
    labels = {vertex.index: vertex.label for vertex in vertices(block)}
    pairs = {(labels[one.link.source], labels[one.link.target]) for one in block.links}
    assert ("before", "blocks.1.norm") in pairs
    assert ("before", "AddBackward0") in pairs
    assert ("AddBackward0", "after") in pairs
    first, last = (
        next(p.frame for p in block.vertices if p.vertex.label == end)
        for end in ("before", "after")
    )
    inner = [p.frame for p in block.vertices if p.vertex.kind != "outside"]
    assert first.bottom < min(frame.y for frame in inner)
    assert last.y > max(frame.bottom for frame in inner)


def test_the_whole_has_the_model_and_what_is_outside(report, drawings):
    (model,) = vertices(drawings[WHOLE])
    assert (model.kind, model.modules) == ("module", (0,))


def test_of_too_many_vertices_the_middle_is_one():
    report = inspect(Aperiodic(), torch.randn(2, 4), lambda out: out.mean(), probe_steps=0)
    drawing = module_drawings(report, most=20)[0]
    assert len(drawing.vertices) == 20
    (rest,) = (one for one in vertices(drawing) if one.kind == "rest")
    shown = sum(len(one.nodes) for one in vertices(drawing) if one.kind == "operation")
    middle = sum(len(one.nodes) for one in vertices(drawing) if one.kind in ("rest", "module"))
    # All but the mean, which is not the model's.
    assert shown + middle + 1 == sum(node.kind != "view" for node in report.recording.nodes)
    assert rest.label.startswith("… ")


def test_operations_of_a_loop_are_one_vertex_each():
    report = inspect(Cell(), torch.randn(2, 4), lambda out: out.mean(), probe_steps=0)
    drawing = module_drawings(report)[0]
    names = {one.index: vertex_text(one)[0] for one in vertices(drawing)}
    tanh, add = (f"{name} {UNICODE.times}30" for name in ("Tanh", "Add"))
    assert Counter(names.values()) == Counter(["cell Linear", tanh, add, "after"])
    links = {(names[one.link.source], names[one.link.target]) for one in drawing.links}
    assert links == {("cell Linear", tanh), (tanh, add), (add, "cell Linear"), (add, "after")}
    tables = plain(drawing_columns({0: drawing}, {}))["vertices"]
    assert set(tables["tensor"]) == {None}


def test_operations_between_different_modules_are_not_folded():
    report = inspect(Residual(), torch.randn(2, 4), lambda out: out.mean(), probe_steps=0)
    drawn = [one for one in vertices(module_drawings(report)[0]) if one.kind == "operation"]
    assert len(drawn) == 12
    assert {one.copies for one in drawn} == {1}


def test_columns_have_every_number_and_place(report, drawings):
    tensors = {row.node: position for position, row in enumerate(report.tensors)}
    tables = plain(drawing_columns(drawings, tensors))
    rows, links, layouts = tables["drawings"], tables["links"], tables["layouts"]
    assert rows["module"][:-1] == [None if one < 0 else one for one in drawings]
    for position, drawing in enumerate(drawings.values()):
        layout = rows["layout"][position]
        first, frame = rows["vertex"][position], layouts["frame"][layout]
        assert rows["vertex"][position + 1] - first == len(drawing.vertices)
        for at, placed in enumerate(drawing.vertices):
            assert tables["vertices"]["label"][first + at] == placed.vertex.label
            assert same(tables["vertices"]["norm"][first + at], placed.vertex.grad_norm)
            for side in ("x", "y", "width", "height"):
                found = tables["frames"][side][frame + at]
                assert found == pytest.approx(getattr(placed.frame, side), abs=0.06)
        for at, placed in enumerate(drawing.links, rows["link"][position]):
            assert same(links["norm"][at], placed.link.grad_norm)
            assert links["source"][at] == placed.link.source


def same(one, other):
    return one is other or one == other or (one != one and other != other)


def test_a_click_on_an_operation_selects_its_tensor(report, drawings):
    tensors = {row.node: position for position, row in enumerate(report.tensors)}
    tables = plain(drawing_columns(drawings, tensors))["vertices"]
    for label, kind, tensor in zip(tables["label"], tables["kind"], tables["tensor"], strict=True):
        if kind == "operation":
            assert report.tensors[tensor].operation == label


@pytest.mark.nightly
def test_time_grows_with_the_graph_alone():
    def seconds(depth):
        model = nn.Sequential(*(nn.Sequential(nn.Linear(2, 2), nn.Tanh()) for _ in range(depth)))
        report = inspect(model, torch.randn(2, 2), lambda out: out.mean(), probe_steps=0)
        found = []
        for _ in range(3):
            start = time.process_time()
            module_drawings(report)
            found.append(time.process_time() - start)
        return min(found)

    assert seconds(200) < 8 * seconds(50)
