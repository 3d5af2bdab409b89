"""Reports as large as a page has to carry."""

import random
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

import gradscope
from gradscope.recording.norm_table import NormTable
from gradscope.session.report import Report
from tests.report.html.charts.loops import finding, report_of
from tests.rules.accumulation.runs import Run


class Block(nn.Module):
    """Ten layers of next to no work."""

    def __init__(self) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(2, 2) for _ in range(10))

    def forward(self, x: Tensor) -> Tensor:
        for projection in self.projections:
            x = x + 0.1 * torch.tanh(projection(x))
        return x


class DeepNetwork(nn.Module):
    """Blocks with names as long as those of language models."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.transformer_blocks = nn.ModuleList(Block() for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.transformer_blocks:
            x = block(x)
        return x


def large_inspection(blocks: int) -> Report:
    """Inspect a model of 20 parameters and 40 tensors a block."""
    torch.manual_seed(0)
    model = DeepNetwork(blocks)
    batch = torch.ones(4, 2)
    return gradscope.inspect(model, batch, lambda output: output.square().mean(), probe_steps=0)


def large_run(steps: int, parameters: int) -> Report:
    """Return the report of a run with a norm for each parameter in each step."""
    draw = random.Random(0)
    run = Run()
    model = run.model("model.transformer_blocks", parameters)
    optimizer = run.optimizer(model, "AdamW", line=3, name="optimizer")
    for _ in range(steps):
        run.zero(optimizer, line=9)
        run.backward(model, line=10, loss=draw.random(), rows=4)
        run.step(optimizer, line=11, norm=draw.random(), lr=1e-3)
    recording = run.recording()

    def rows() -> Iterator[list[tuple[int, int, str, float, float, float]]]:
        for step in range(steps):
            yield [
                (step, parameter, "gradient", 10 ** draw.uniform(-9, 1), 1.0, draw.random())
                for parameter in model
            ]

    numels = {parameter.index: parameter.numel for parameter in recording.parameters}
    table = NormTable.of_rows(rows(), numels)
    return report_of(replace(recording, parameter_stats=table), finding(step=steps // 2))
