"""Whole reports of runs at fixed widths. GRADSCOPE_UPDATE_GOLDEN=1 rewrites the files."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.run.conftest import accumulation, adversarial, cut_short, network, shown

GOLDEN = Path(__file__).parent / "golden"


def check(name, text):
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("GRADSCOPE_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == path.read_text(encoding="utf-8")


def spiky():
    """Sixty steps whose loss falls, and norms that rise towards the first of forty blocks."""

    def norm(step, block):
        if block == 30 and step >= 40:
            return None
        return (50.0 if step == 23 else 1.0) * 0.8**block

    recording = network(60, norm, blocks=40)
    steps = [replace(step, loss=3.0 * 0.95**step.index) for step in recording.steps]
    return replace(recording, steps=tuple(steps))


@pytest.mark.parametrize("width", [60, 80, 140])
def test_three_optimizers(width):
    check(f"adversarial-{width}", shown(adversarial(), width=width))


@pytest.mark.parametrize("width", [80, 140])
def test_layers(width):
    check(f"layers-{width}", shown(spiky(), width=width))


def test_accumulation_in_ascii():
    check("accumulation-ascii", shown(cut_short(accumulation()), encoding="ascii"))


def test_markdown():
    check("accumulation-markdown", shown(accumulation(), "markdown"))


def test_concise():
    check("adversarial-concise", shown(adversarial(), "concise"))
