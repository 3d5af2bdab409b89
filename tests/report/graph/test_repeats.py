"""Blocks that are alike are drawn as one, with the range of their norms."""

import pytest
import torch
from torch import nn

from gradscope.recording.finding import Verdict
from gradscope.recording.records import TensorRef
from gradscope.report.graph.labels import box_title
from gradscope.report.graph.part import GraphOptions, graph_part
from gradscope.report.page import UNICODE
from gradscope.session.api import inspect

TIMES = UNICODE.times


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.GELU())

    def forward(self, x):
        return x + self.inner(self.norm(x))


class Stack(nn.Module):
    def __init__(self, odd=None):
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(Residual() for _ in range(6))
        if odd is not None:
            odd(self)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return x


def report_of(model):
    torch.manual_seed(0)
    return inspect(model, torch.randn(3, 4), lambda out: out.square().mean(), probe_steps=0)


def folded(report, **options):
    return graph_part(report, GraphOptions(folds_repeats=True, **options))


def titles(part):
    return [box_title(box) for box in part.boxes]


@pytest.fixture(scope="module")
def stack():
    return report_of(Stack())


def test_blocks_are_one_box_without_the_list_around_them(stack):
    part = folded(stack)
    assert titles(part)[1:3] == ["stem Linear", f"blocks.0 … blocks.5 Residual {TIMES}6"]
    operations = [vertex.label for vertex in part.vertices if vertex.kind == "operation"]
    assert operations.count("GeluBackward0") == 1
    assert sum(len(vertex.nodes) for vertex in part.vertices if vertex.kind == "operation") == sum(
        node.kind == "operation" for node in stack.recording.nodes
    )


def test_norms_of_copies_are_a_range(stack):
    part = folded(stack)
    rows = [row for row in stack.parameters if row.name.endswith("norm.weight")]
    (weight,) = (
        one
        for one in part.vertices
        if one.name == "weight" and one.copies == 6 and "norm" in one.label
    )
    norms = [row.grad.norm for row in rows]
    assert (weight.norms.low, weight.norms.high) == (min(norms), max(norms))
    assert weight.label == "blocks.0.norm.weight … blocks.5.norm.weight"
    (block,) = (box for box in part.boxes if box.copies == 6)
    norms = [row.grad_norm for row in stack.modules if row.class_name == "Residual"]
    assert (block.norms.low, block.norms.high) == (min(norms), max(norms))


def test_links_have_the_range_of_the_tensors_in_all_copies(stack):
    part = folded(stack)
    by_index = {vertex.index: vertex for vertex in part.vertices}
    stats = {TensorRef(node=s.node, slot=s.slot): s for s in stack.recording.tensor_stats}
    gelu = [n.index for n in stack.recording.nodes if n.operation == "GeluBackward0"]
    norms = [stats[TensorRef(node=node, slot=0)].gradient.norm for node in gelu]
    (found,) = (one for one in part.links if by_index[one.source].label == "GeluBackward0")
    assert (found.norms.low, found.norms.high) == (min(norms), max(norms))
    assert found.tensors == 1


def test_what_one_copy_hands_the_next_is_a_link_of_its_own(stack):
    part = folded(stack)
    (block,) = (box for box in part.boxes if box.copies == 6)
    following = [one for one in part.links if one.kind == "next"]
    assert {one.box for one in following} == {block.index}
    # To the norm and to the sum of the next block.
    targets = {part.vertices[one.target].label for one in following}
    assert targets == {"NativeLayerNormBackward0", "AddBackward0"}


def test_nothing_is_folded_where_that_is_not_wanted(stack):
    part = graph_part(stack, GraphOptions())
    assert not any(box.copies > 1 for box in part.boxes)
    assert not any(one.kind == "next" for one in part.links)


def freeze(model):
    model.blocks[2].norm.weight.requires_grad_(False)


def widen(model):
    model.blocks[3].inner = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))


def zero(model):
    nn.init.zeros_(model.blocks[5].inner[0].weight)


@pytest.mark.parametrize(
    ("odd", "parts"),
    [
        (freeze, ["blocks.0 … blocks.1", "blocks.2", "blocks.3 … blocks.5"]),
        (widen, ["blocks.0 … blocks.2", "blocks.3", "blocks.4 … blocks.5"]),
        (zero, ["blocks.0 … blocks.4", "blocks.5"]),
    ],
)
def test_a_block_that_is_not_like_the_others_stands_apart(odd, parts):
    part = folded(report_of(Stack(odd)))
    assert [box.name for box in part.boxes if box.class_name == "Residual"] == parts


def test_a_block_that_a_finding_is_about_stands_apart(stack):
    from gradscope.session.report import Report
    from tests.report.graph.findings import finding

    verdict = Verdict(findings=(finding(modules=("blocks.4",)),), ran=(), skipped=())
    part = folded(Report.from_recording(stack.recording, verdict))
    blocks = [box for box in part.boxes if box.class_name == "Residual"]
    assert [box.name for box in blocks] == ["blocks.0 … blocks.3", "blocks.4", "blocks.5"]
    assert [box.severity for box in blocks] == [None, "error", None]


def test_layers_that_repeat_in_turn_share_a_box():
    layers = [layer for _ in range(4) for layer in (nn.Linear(4, 4), nn.Tanh())]
    part = folded(report_of(nn.Sequential(*layers, nn.Linear(4, 1))))
    assert titles(part) == ["Sequential", f"0 … 7 {TIMES}4", "0 Linear", "1 Tanh", "8 Linear"]
    assert {one.kind for one in part.links} == {"gradient", "next"}


def test_blocks_in_blocks_are_folded_in_each():
    stage = [nn.Sequential(*(Residual() for _ in range(3))) for _ in range(4)]
    part = folded(report_of(nn.Sequential(*stage)))
    assert titles(part)[1:3] == [f"0 … 3 Sequential {TIMES}4", f"0 … 2 Residual {TIMES}3"]
    weights = [one for one in part.vertices if one.label.startswith("0.0.norm.weight")]
    assert [one.copies for one in weights] == [12]
    assert {part.boxes[one.box].copies for one in part.links if one.kind == "next"} == {3, 4}


def test_blocks_folded_by_depth_are_one_vertex(stack):
    part = folded(stack, depth=2)
    (blocks,) = (one for one in part.vertices if one.copies == 6)
    assert (blocks.kind, blocks.name) == ("module", "blocks.0 … blocks.5")
    assert not any(one.source == one.target for one in part.links)
    assert part.folded_modules == 6
