"""GS401 and GS402 on loops that scale gradients by hand."""

import ast

import pytest

from gradscope.capture.source.gradient_writes import misplaced_writes
from tests.nightly import some_on_push
from tests.rules.watching import findings_of_script

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
kept = []


def clip(parameters):
    parameters = list(parameters)
    norms = [p.grad.norm() for p in parameters if p.grad is not None]
    if norms:
        for p in parameters:
            p.grad.data.mul_(0.1 / torch.stack(norms).norm())


for step in range(6):
    loss = model(torch.randn(8, 6)).square().mean()
"""

CALL = "clip(model.parameters())"
CLAMP = "for p in model.parameters():\n    p.grad.clamp_(-1, 1)"
SCALE = "for p in model.parameters():\n    if p.grad is not None:\n        p.grad *= 0.5"
NEW = (
    "for p in model.parameters():\n    if p.grad is not None:\n        p.grad = p.grad.clamp(-1, 1)"
)
ZERO, BACK, STEP = "optimizer.zero_grad()", "loss.backward()", "optimizer.step()"
KEEP = "for p in model.parameters():\n    kept.append(p.grad.div_(2))"

LOOPS = {
    "a function after the step": ([ZERO, BACK, STEP, CALL], "late"),
    "a loop after the step": ([ZERO, BACK, STEP, CLAMP], "late"),
    "before gradients are zeroed": ([BACK, STEP, SCALE, ZERO], "late"),
    "behind a schedule": ([ZERO, BACK, STEP, "scheduler.step()", CLAMP], "late"),
    "a function before backward": ([ZERO, CALL, BACK, STEP], "early"),
    "a loop before backward": ([ZERO, SCALE, BACK, STEP], "early"),
    "a new gradient before backward": ([NEW, BACK, STEP, ZERO], "early"),
    "between backward and step": ([ZERO, BACK, CALL, STEP], None),
    "a schedule before it": (["scheduler.step()", ZERO, BACK, CLAMP, STEP], None),
    "never zeroed": ([BACK, STEP, SCALE], None),
    "zeroed at times": ([f"if step % 2:\n    {ZERO}", SCALE, BACK, STEP], None),
    "kept elsewhere": ([ZERO, BACK, STEP, KEEP], None),
    "twice": ([ZERO, BACK, CLAMP, STEP, CLAMP], None),
    "a step in a branch": ([ZERO, BACK, f"if step:\n    {STEP}", STEP, CLAMP], None),
    "weights": ([ZERO, BACK, STEP, "for p in model.parameters():\n    p.data.clamp_(-1, 1)"], None),
}


def written(parts):
    lines = [line for part in parts for line in part.splitlines()]
    return SCRIPT + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize("name", LOOPS)
def test_statements_that_scale_gradients_in_vain(name):
    parts, way = LOOPS[name]
    found = list(misplaced_writes(ast.parse(written(parts))))
    assert [one.way for one in found] == ([] if way is None else [way])


@pytest.mark.parametrize("name", some_on_push(LOOPS, {1, 4, 7}))
def test_a_loop_that_runs_is_a_warning(name, tmp_path):
    parts, way = LOOPS[name]
    if name == "a step in a branch":
        parts = [ZERO, BACK, STEP]
    script = tmp_path / "train.py"
    script.write_text(written(parts))
    expected = {"late": ["GS401"], "early": ["GS402"], None: []}[way]
    found = [one for one in findings_of_script(script, tmp_path) if one.rule in ("GS401", "GS402")]
    assert [one.rule for one in found] == expected
    assert {one.severity for one in found} <= {"warning"}


def test_a_loop_that_does_not_run_is_left_alone(tmp_path):
    text = written([ZERO, BACK, STEP]) + "\n\ndef other(loss):\n    for _ in range(3):\n"
    for part in (ZERO, BACK, STEP, CALL):
        text += f"        {part}\n"
    script = tmp_path / "train.py"
    script.write_text(text)
    assert not {one.rule for one in findings_of_script(script, tmp_path)} & {"GS401", "GS402"}
