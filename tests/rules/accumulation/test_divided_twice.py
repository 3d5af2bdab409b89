"""GS320, judged from loops as users write them."""

import pytest

from tests.nightly import some_on_push
from tests.rules.accumulation.runs import Run
from tests.rules.watching import findings_of_script

MEAN, SUM = 1, 0


def loop(passes=4, *, class_name="SGD", windows=6, **numbers):
    """A loop that steps after so many passes of one line."""
    run = Run()
    weights = run.model("model", 4)
    optimizer = run.optimizer(weights, class_name)
    for _ in range(windows):
        run.zero(optimizer, line=10)
        for _ in range(passes):
            run.backward(weights, line=11, **{"reduction": MEAN, "rows": 8, **numbers})
        run.step(optimizer, line=12)
    return run


@pytest.mark.parametrize(("class_name", "severity"), [("SGD", "warning"), ("AdamW", "note")])
@pytest.mark.parametrize("passes", [3, 4, 8])
def test_the_square_of_the_number_of_passes_is_found(class_name, severity, passes):
    (found,) = loop(passes, class_name=class_name, divided=passes**2).findings("GS320")
    assert (found.severity, found.location.line, found.count) == (severity, 11, 6)
    assert [position.line for position in found.related] == [12]
    assert dict(found.evidence)["loss_divided_by"] == passes**2


@pytest.mark.parametrize(
    "chosen",
    [
        {"divided": 4},
        {"divided": 8},
        {"divided": 15},
        {"divided": 16, "reduction": SUM},
        {"divided": 4, "multiplied": 4},
        {"passes": 1, "divided": 1},
        {"passes": 2, "divided": 4},
    ],
    ids=[
        "divided by k",
        "weighted by a half",
        "almost the square",
        "a sum",
        "divided by the rows of the batch and multiplied by its own",
        "one pass",
        "the mean of two losses over two",
    ],
)
def test_other_divisions_are_fine(chosen):
    assert not loop(**chosen).findings("GS320")


SCRIPT = """
import torch
from torch import nn

def backward(loss):
    (loss / 4).backward()

torch.manual_seed(0)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(24):
    x = torch.randn(8, 3)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    {division}
    backward(loss)
    if step % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("division", "lines"), some_on_push([("loss = loss / 4", [14]), ("loss = loss * 1.0", [])], 2)
)
def test_the_script_is_told_its_own_division(division, lines, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(division=division), encoding="utf-8")
    found = [one for one in findings_of_script(script, tmp_path) if one.rule == "GS320"]
    assert [one.location.line for one in found] == lines
