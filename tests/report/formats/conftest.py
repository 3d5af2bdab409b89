"""A recording of a small transformer made by hand: norms are powers and round numbers."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from gradscope.analysis.view import ViewOptions
from gradscope.recording.finding import UNJUDGED
from gradscope.recording.records import (
    EdgeRecord,
    GradientStat,
    ModuleCallRecord,
    ModuleRecord,
    NodeRecord,
    ParameterRecord,
    ParameterStat,
    Shape,
    Site,
    Skipped,
    StepRecord,
    TensorRef,
    TensorStat,
)
from gradscope.report.render import render
from gradscope.session.report import Report
from tests.records import ENVIRONMENT, recording, target

ROOT = "/home/user/project"


def gradient(norm, *, numel=16, nonfinite=0):
    return GradientStat(
        numel=numel,
        norm=norm,
        absolute_maximum=norm,
        zero_share=0.0,
        nonfinite=nonfinite,
        sampled=False,
    )


class Builder:
    """Collects records; a chain of modules, each with one operation and a weight."""

    def __init__(self):
        self.modules, self.parameters, self.stats = [], [], []
        self.nodes, self.edges, self.calls, self.tensors = [], [], [], []
        self.sites = []
        self.add("", "Model", parent=None)

    def add(self, path, class_name, parent=0):
        self.modules.append(
            ModuleRecord(
                index=len(self.modules),
                path=path,
                aliases=(),
                class_name=class_name,
                parent=parent,
                in_model=True,
                training=True,
            )
        )
        return len(self.modules) - 1

    def weight(self, module, norm, *, name="weight", reach="gradient", reason=None, nonfinite=0):
        shape = Shape(dims=(4, 4), dtype="float32")
        index = len(self.parameters)
        path = self.modules[module].path
        self.parameters.append(
            ParameterRecord(
                index=index,
                name=f"{path}.{name}" if path else name,
                aliases=(),
                module=module,
                shape=shape,
                device="cpu",
                numel=16,
                requires_grad=reach != "frozen",
                optimizer_group=None,
            )
        )
        stat = None if norm is None else gradient(norm, nonfinite=nonfinite)
        self.stats.append(
            ParameterStat(
                step=0,
                parameter=index,
                reach=reach,
                gradient=stat,
                reason=reason,
                weight_norm=2.0,
                update_norm=None,
            )
        )
        return index

    def operate(self, module, operation, norm, *, parameter=None, source="x = self.layer(x)"):
        """Add an operation that takes the last one's output, as one call of its module."""
        previous = self.calls[-1].outputs if self.calls else ()
        if parameter is not None:
            leaf = self._node("AccumulateGrad", "parameter", None, parameter=parameter)
        node = self._node(operation, "operation", len(self.calls))
        self.sites.append(Site(file=f"{ROOT}/model.py", line=node, function="f", source=source))
        self.nodes[node] = replace(self.nodes[node], site=len(self.sites) - 1)
        if parameter is not None:
            self.edges.append(EdgeRecord(source=node, target=leaf, slot=0))
        for ref in previous:
            self.edges.append(EdgeRecord(source=node, target=ref.node, slot=0))
        stat = gradient(norm)
        self.tensors.append(
            TensorStat(step=0, node=node, slot=0, order=0, gradient=stat, reason=None)
        )
        self.calls.append(
            ModuleCallRecord(
                index=len(self.calls),
                graph=0,
                module=module,
                call=0,
                parent=None,
                site=None,
                inputs=previous,
                outputs=(TensorRef(node=node, slot=0),),
            )
        )

    def _node(self, operation, kind, call, parameter=None):
        self.nodes.append(
            NodeRecord(
                index=len(self.nodes),
                graph=0,
                operation=operation,
                kind=kind,
                depth=0,
                sequence=len(self.nodes) if kind == "operation" else None,
                module_call=call,
                site=None,
                outputs=(Shape(dims=(2, 4), dtype="float32"),),
                parameter=parameter,
            )
        )
        return len(self.nodes) - 1

    def recording(self, **changes):
        last = len(self.nodes) - 1
        values = {
            "version": "1",
            "environment": replace(ENVIRONMENT, python="3.11"),
            "target": target(
                model=self.modules[0].class_name,
                batch="float32[2, 4]",
                loss="loss_fn(output, target)",
                seed=0,
                root=ROOT,
            ),
            "parameters": tuple(self.parameters),
            "modules": tuple(self.modules),
            "calls": tuple(self.calls),
            "sites": tuple(self.sites),
            "nodes": tuple(replace(node, depth=last - node.index) for node in self.nodes),
            "edges": tuple(self.edges),
            "steps": (StepRecord(index=0, kind="step", graph=0, loss=4.16, optimizer=None),),
            "parameter_stats": tuple(self.stats),
            "tensor_stats": tuple(self.tensors),
        }
        return recording(**(values | changes))


def transformer(blocks=12):
    build = Builder()
    embed = build.add("embed", "Embedding")
    build.operate(embed, "EmbeddingBackward0", 1.0, parameter=build.weight(embed, 1.0))
    layers = build.add("layers", "ModuleList")
    for number in range(blocks):
        block = build.add(f"layers.{number}", "Block", layers)
        norm = build.add(f"layers.{number}.norm", "LayerNorm", block)
        act = build.add(f"layers.{number}.act", "GELU", block)
        linear = build.add(f"layers.{number}.linear", "Linear", block)
        size = 0.01 * 2**number
        build.operate(norm, "NativeLayerNormBackward0", size, parameter=build.weight(norm, size))
        build.operate(act, "GeluBackward0", size / 2)
        weight = build.weight(linear, size / 4)
        build.operate(linear, "AddmmBackward0", size * 2, parameter=weight)
    head = build.add("head", "Linear")
    build.operate(head, "MmBackward0", 3.0, parameter=build.weight(head, 0.5))
    return build


@pytest.fixture
def build():
    return Builder()


@pytest.fixture
def make_transformer():
    return transformer


class Printed:
    """What a report looks like on paper."""

    def __call__(
        self, recording, width=80, encoding="utf-8", color=False, verdict=UNJUDGED, **view
    ):
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        console = Console(
            file=stream,
            width=width,
            force_terminal=color,
            color_system="standard" if color else None,
            no_color=not color,
            markup=False,
            highlight=False,
            emoji=False,
        )
        report = Report.from_recording(recording, verdict)
        text = render(report, "full", ViewOptions(**view), console)
        return text.encode(encoding).decode(encoding) + "\n"

    @staticmethod
    def plain(text):
        return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.fixture
def printed():
    return Printed()


@pytest.fixture
def skipped():
    return (Skipped(what="the inside of 2 x Rnn", reason="a fused layer is one node"),)
