"""Recordings of long runs: what they take on disk, and how long they take to read and to judge."""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import tracemalloc
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

from gradscope.options.recording_options import KEEP
from gradscope.recording.evidence.training import ClipScope, TrainedOptimizer
from gradscope.recording.meta import Header
from gradscope.recording.origin import Environment, TargetRecord
from gradscope.recording.records import (
    EventRecord,
    ModuleRecord,
    ParameterRecord,
    Shape,
    Site,
    StepRecord,
)
from gradscope.recording.repetitions import RepeatedSteps
from gradscope.recording.run_recorder import RunRecorder, RunStep
from gradscope.recording.store import load_recording
from gradscope.recording.thinning.room import Room
from gradscope.rules.engine import judge
from gradscope.session.report import Report

STEPS = 10_000
HEADER = Header(
    version="",
    command="benchmark",
    environment=Environment(python="", torch="", platform="", device="cpu", threads=1),
    target=TargetRecord(
        name="train.py",
        model="Net",
        batch="float32[32, 16]",
        loss="backward()",
        optimizer="AdamW",
        mode="train",
        seed=None,
        synthetic_loss=False,
        root="/project",
        repository="/project",
    ),
)
KINDS = ("zero", "backward", "clip-norm", "step")


def long_runs() -> None:
    """Print what runs of 10,000 steps take."""
    for parameters in (8, 100):
        print(f"\na run of {STEPS:,} steps and {parameters} parameters")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.gradscope"
            written = _timed(lambda path=path, many=parameters: _write(path, many))
            print(f"  {'on disk':<20} {path.stat().st_size / 1e6:8.1f} MB")
            print(f"  {'written, a step':<20} {written / STEPS * 1e6:8.0f} µs")
            print(f"  {'loaded':<20} {_timed(lambda path=path: load_recording(path)):8.2f} s")
            tracemalloc.start()
            recording = load_recording(path)
            print(f"  {'in memory':<20} {tracemalloc.get_traced_memory()[0] / 1e6:8.1f} MB")
            tracemalloc.stop()
            print(f"  {'judged':<20} {_timed(lambda one=recording: judge(one)):8.2f} s")
            joined = _timed(lambda one=recording: Report.from_recording(one))
            print(f"  {'joined to a report':<20} {joined:8.2f} s")
            for command in ("report", "check"):
                run = [sys.executable, "-m", "gradscope", command, str(path)]
                seconds = _timed(
                    lambda run=run: subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
                )
                print(f"  {'gradscope ' + command:<20} {seconds:8.2f} s")


LONG_STEPS = 1_000_000
FULL_EVERY = 100
"""Of so many steps, one is recorded in full, and the others repeat it: as the budget allows."""


def million_steps() -> None:
    """Print what a run of a million steps, and one of many parameters, take within the limit."""
    _long(LONG_STEPS, 6, FULL_EVERY)
    _long(20_000, 2_000, 10)


def _long(steps: int, parameters: int, full_every: int) -> None:
    print(f"\na run of {steps:,} steps and {parameters:,} parameters, within {KEEP}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.gradscope"
        written = _timed(lambda: _write_repeating(path, steps, parameters, full_every))
        print(f"  {'on disk':<20} {path.stat().st_size / 1e6:8.1f} MB")
        print(f"  {'written, a step':<20} {written / steps * 1e6:8.1f} µs")
        page, other = str(Path(folder) / "page.html"), str(Path(folder) / "other.gradscope")
        shutil.copy(path, other)
        for words in (
            ["report"],
            ["check"],
            ["clip-report"],
            ["compare", other],
            ["report", "-o", page],
        ):
            run = [sys.executable, "-m", "gradscope", words[0], str(path), *words[1:]]
            seconds = _timed(lambda run=run: subprocess.run(run, stdout=subprocess.DEVNULL))
            name = f"gradscope {words[0]}{' -o' if page in words else ''}"
            print(f"  {name:<20} {seconds:8.2f} s")
        print(f"  {'HTML page':<20} {Path(page).stat().st_size / 1e6:8.1f} MB")


def _write_repeating(path: Path, steps: int, parameters: int, full_every: int) -> None:
    draw = random.Random(0)
    recorder = RunRecorder(path, HEADER, Room.of(KEEP))
    recorder.add(_structure(parameters))
    last = 0
    if recorder.thinner is not None:
        recorder.thinner.in_use = lambda: {last}
    for number in range(0, steps, full_every):
        last = number
        step = StepRecord(
            index=number, kind="run", graph=None, loss=draw.random(), optimizer="AdamW(lr=0.001)"
        )
        norms = [(place, "gradient", draw.random(), 3.0, None) for place in range(parameters)]
        recorder.add(RunStep(step=step, events=tuple(_events(number, parameters)), norms=norms))
        count = full_every - 1
        recorder.repeat(
            RepeatedSteps(
                first=number + 1,
                sources=(number,),
                choices=bytes(2 * count),
                losses=array("d", [draw.random() for _ in range(count)]).tobytes(),
                rates=array("d", [0.001] * count).tobytes(),
                began=float(number),
                ended=float(number + count),
            )
        )
    recorder.close()


def _timed(work: Callable[[], object]) -> float:
    """Return the processor's time: what else the machine does is not in it."""
    start = sum(os.times()[:4])
    work()
    return sum(os.times()[:4]) - start


def _write(path: Path, parameters: int) -> None:
    draw = random.Random(0)
    recorder = RunRecorder(path, HEADER)
    recorder.add(_structure(parameters))
    for number in range(STEPS):
        is_measured = number < 3 or number % 10 == 0
        norms = [
            (position, "gradient", draw.random(), 3.0, 0.01 if is_measured else None)
            for position in range(parameters)
        ]
        step = StepRecord(
            index=number, kind="run", graph=None, loss=draw.random(), optimizer="AdamW(lr=0.001)"
        )
        recorder.add(RunStep(step=step, events=tuple(_events(number, parameters)), norms=norms))
    recorder.close()


def _structure(parameters: int) -> RunStep:
    held = tuple(range(parameters))
    return RunStep(
        parameters=tuple(
            ParameterRecord(
                index=position,
                name=f"model.{position // 2}.{'bias' if position % 2 else 'weight'}",
                aliases=(),
                module=1 + position // 2,
                shape=Shape(dims=(32, 32), dtype="float32"),
                device="cpu",
                numel=1024,
                requires_grad=True,
                optimizer_group=None,
            )
            for position in held
        ),
        modules=tuple(
            ModuleRecord(
                index=position,
                path=f"model.{position - 1}" if position else "model",
                aliases=(),
                class_name="Linear" if position else "Sequential",
                parent=0 if position else None,
                in_model=True,
                training=True,
            )
            for position in range(1 + (parameters + 1) // 2)
        ),
        sites=tuple(
            Site(file="/project/train.py", line=10 + position, function="train", source="")
            for position in range(len(KINDS))
        ),
        optimizers=(
            (
                0,
                TrainedOptimizer(
                    class_name="AdamW",
                    family="adaptive",
                    name="optimizer",
                    site=0,
                    parameters=held,
                    replaced=None,
                ),
            ),
        ),
        scopes=(ClipScope(parameters=held),),
    )


def _events(step: int, parameters: int) -> Iterator[EventRecord]:
    every = float(parameters)
    norm, loss = 0.2 + 1e-9 * step, 1 / (1 + step)
    numbers = (
        {"parameters": every, "unspent": 0.0, "set_to_none": 1.0},
        {"root": float(step), "again": 0.0, "divided": 1.0, "scaled": 0.0, "loss": loss}
        | {"nodes": 21.0, "older": 0.0, "rows": 32.0, "retain": 0.0, "create": 0.0}
        | {"reached": every, "stale": 0.0, "added": 0.0, "reduction": 1.0},
        {"max_norm": 1.0, "norm_type": 2.0, "norm": norm, "parameters": every, "fresh": every}
        | {"spent": 0.0, "empty": 0.0, "scaled": 0.0, "exhausted": 0.0, "scope": 0.0},
        {"parameters": every, "with_gradient": every, "fresh": every, "stale": 0.0, "none": 0.0}
        | {"backwards": 1.0, "clipped": every, "manual": 0.0, "norm": norm, "lr": 0.001},
    )
    for order, kind in enumerate(KINDS):
        yield EventRecord(
            step=step,
            order=order,
            kind=kind,
            seconds=step + order / 10,
            site=order,
            numbers=tuple(numbers[order].items()),
            optimizer=0 if kind in ("zero", "step") else None,
        )
