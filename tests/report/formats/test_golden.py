"""The whole report at fixed widths. GRADSCOPE_UPDATE_GOLDEN=1 rewrites the files."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gradscope.recording.records import StepRecord

GOLDEN = Path(__file__).parent / "golden"


def check(name, text):
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("GRADSCOPE_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [60, 80, 140])
def test_transformer(width, make_transformer, printed):
    check(f"transformer-{width}", printed(make_transformer().recording(), width))


def test_transformer_in_ascii(make_transformer, printed):
    check("transformer-ascii", printed(make_transformer().recording(), encoding="ascii"))


def test_troubled_model(build, printed, skipped):
    good, broken = build.add("good", "Linear"), build.add("broken", "Linear")
    lost, still = build.add("lost", "Linear"), build.add("still", "Linear")
    build.operate(good, "AddmmBackward0", 2.0, parameter=build.weight(good, 0.5))
    weight = build.weight(broken, float("nan"), nonfinite=3)
    build.operate(broken, "DivBackward0", float("inf"), parameter=weight)
    for name in ("weight", "bias"):
        build.weight(lost, None, name=name, reach="none", reason="no path leads to it")
    build.weight(lost, None, name="scale", reach="frozen", reason="frozen")
    build.weight(still, 0.0, reach="zero")
    recording = build.recording(skipped=skipped)
    target = replace(recording.target, synthetic_loss=True, optimizer="Adam(lr=0.1)")
    steps = (
        *recording.steps,
        StepRecord(index=1, kind="probe", graph=0, loss=4.02, optimizer="Adam(lr=0.1)"),
    )
    check("troubled-80", printed(replace(recording, target=target, steps=steps)))


def test_every_tensor(make_transformer, printed):
    check("tensors-140", printed(make_transformer(blocks=2).recording(), 140, tensors="all"))
