"""Loops as users write them, recorded without torch, and what a report of them looks like."""

import io
import math
from dataclasses import replace

import pytest
from rich.console import Console

from gradscope.analysis.view import ViewOptions
from gradscope.recording.records import GradientStat, ModuleRecord, ParameterRecord, Shape
from gradscope.report.render import render
from gradscope.session.report import Report
from tests.rules.accumulation.runs import Run


def cut_short(recording):
    """Return a recording that ends before its run did."""
    return replace(recording, finished=False)


def accumulation(steps=12, last=2):
    """Four micro-batches a step, fewer in the last; everything behind the step at the end."""
    run = Run()
    weights = run.model("model", 4)
    adam = run.optimizer(weights, "AdamW", line=3)
    for turn in range(steps):
        for _ in range(4 if turn < steps - 1 else last):
            run.backward(weights, line=10, rows=32, loss=2.0 * 0.9**turn, divided=4)
        run.event("unscale", 11, optimizer=adam)
        run.event("clip-norm", 12, max_norm=1.0, norm=3.0 + turn % 3, parameters=4, fresh=4)
        run.step(adam, line=13)
        run.event("scaler-update", 14, scale_before=1024, scale_after=1024)
        run.event("scheduler", 15, optimizer=adam, subject="CosineAnnealingLR")
        run.zero(adam, line=16)
    return run.recording()


def adversarial(rounds=10):
    """Two steps of the critic for each of the generator, and a third optimizer now and then."""
    run = Run()
    generator = run.model("generator", 3, class_name="Generator")
    critic = run.model("critic", 3, class_name="Critic")
    of_generator = run.optimizer(generator, "Adam", line=3, name="opt_g")
    of_critic = run.optimizer(critic, "Adam", line=4, name="opt_c")
    of_scale = run.optimizer(critic[:1], "SGD", line=5, name="opt_scale")
    for turn in range(rounds):
        for _ in range(2):
            run.zero(of_critic, line=9)
            run.backward(critic, line=10, rows=8)
            run.backward(critic, line=11, rows=8)
            run.step(of_critic, line=12)
        run.zero(of_generator, line=13)
        run.backward(generator + critic, line=14, rows=8)
        run.step(of_generator, line=15)
        if turn % 5 == 4:
            run.step(of_scale, line=18)
    return run.recording()


def plain(steps=3, line=6):
    """`backward` and `step`, nothing else."""
    run = Run()
    weights = run.model("model", 2)
    sgd = run.optimizer(weights)
    for turn in range(steps):
        run.zero(sgd, line=4)
        run.backward(weights, line=5, loss=1.0 / (turn + 1))
        run.step(sgd, line=line)
    return run.recording()


def network(steps, norm, blocks=3):
    """A model of equal blocks; `norm(step, block)` is the gradient norm of each block's weight."""
    recording = plain(steps)
    paths = ["net", "net.blocks", *(f"net.blocks.{position}" for position in range(blocks))]
    classes = ["Net", "ModuleList", *("Block" for _ in range(blocks))]
    parents = [None, 0, *(1 for _ in range(blocks))]
    modules = tuple(
        ModuleRecord(
            index=position,
            path=path,
            aliases=(),
            class_name=classes[position],
            parent=parents[position],
            in_model=True,
            training=True,
        )
        for position, path in enumerate(paths)
    )
    parameters = tuple(
        ParameterRecord(
            index=block,
            name=f"net.blocks.{block}.weight",
            aliases=(),
            module=2 + block,
            shape=Shape(dims=(4,), dtype="float32"),
            device="cpu",
            numel=4,
            requires_grad=True,
            optimizer_group=0,
        )
        for block in range(blocks)
    )
    like = recording.parameter_stats[0]
    stats = tuple(
        replace(
            like,
            step=step,
            parameter=block,
            reach="none" if value is None else "gradient",
            gradient=None if value is None else gradient(value),
            update_norm=0.01,
            weight_norm=10.0,
        )
        for step in range(steps)
        for block in range(blocks)
        for value in [norm(step, block)]
    )
    return replace(recording, modules=modules, parameters=parameters, parameter_stats=stats)


def gradient(norm):
    return GradientStat(
        numel=4,
        norm=norm,
        absolute_maximum=norm,
        zero_share=0.0,
        nonfinite=0 if math.isfinite(norm) else 1,
        sampled=False,
    )


def shown(recording, output_format="full", *, width=80, encoding="utf-8", **view):
    """Return a report as a user reads it."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=stream, width=width, markup=False, highlight=False, emoji=False)
    report = Report.from_recording(recording)
    return render(report, output_format, ViewOptions(**view), console)


@pytest.fixture
def run_of():
    """The training run of a recording's report."""
    return lambda recording: Report.from_recording(recording).training_run
