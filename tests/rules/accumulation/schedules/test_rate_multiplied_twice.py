"""GS321, judged from the learning rates of loops."""

import pytest

from tests.nightly import some_on_push
from tests.rules.accumulation.runs import Run
from tests.rules.watching import findings_of_script


def loop(rates, *, base=0.1, line=12):
    """A loop whose steps have these learning rates."""
    run = Run()
    weights = run.model("model", 2)
    optimizer = run.optimizer(weights, base_rate=base)
    for rate in rates:
        run.zero(optimizer, line=10)
        run.backward(weights, line=11)
        run.step(optimizer, line=line, lr=rate)
    return run


@pytest.mark.parametrize(
    "rates",
    [[0.01] * 10, [0.01 / (1 + step) for step in range(20)], [0.0, 0.005, *[0.01] * 10, 0.005]],
    ids=["constant", "falling", "with a warm-up"],
)
def test_the_square_of_the_rate_is_found(rates):
    (found,) = loop(rates).findings("GS321")
    assert found.severity == "warning"
    assert dict(found.evidence)["lr_highest"] == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("rates", "base"),
    [
        ([0.1 / (1 + step) for step in range(20)], 0.1),
        ([0.01 * 1.001] * 10, 0.1),
        ([0.01] * 9, 0.1),
        ([0.001 * (step + 1) for step in range(10)], 0.1),
        ([0.01] * 10, None),
        ([1.0] * 10, 1.0),
    ],
    ids=["a factor", "next to the square", "too few", "a warm-up", "no LambdaLR", "a rate of 1"],
)
def test_other_rates_are_fine(rates, base):
    assert not loop(rates, base=base).findings("GS321")


SCRIPT = """
import torch
from torch.optim.lr_scheduler import LambdaLR

model = torch.nn.Linear(3, 1)
lr = {lr}

def rate(step):
    return {factor} * 0.99 ** step

optimizer = torch.optim.Adam(model.parameters(), lr=lr)
scheduler = LambdaLR(optimizer, rate)
for step in range({steps}):
    x = torch.randn(8, 3)
    optimizer.zero_grad()
    (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
    optimizer.step()
    scheduler.step()
"""


@pytest.mark.parametrize(("base", "severity"), [(0.1, "warning"), (0.01, "error"), (1e-3, "error")])
def test_a_hundredth_of_the_rate_is_an_error(base, severity):
    (found,) = loop([base**2] * 10, base=base).findings("GS321")
    assert found.severity == severity


@pytest.mark.parametrize(
    ("lr", "factor", "lines"),
    some_on_push(
        [("0.01", "lr", [8]), ("0.01", "1.0", []), ("1.0", "0.01", []), ("0.01", "0.02", [])],
        {0, 1},
    ),
)
def test_the_function_of_a_script_is_named(lr, factor, lines, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(lr=lr, factor=factor, steps=12), encoding="utf-8")
    found = [one for one in findings_of_script(script, tmp_path) if one.rule == "GS321"]
    assert [one.location.line for one in found] == lines


def test_the_method_of_a_script_is_named(tmp_path):
    script = tmp_path / "train.py"
    source = SCRIPT.format(lr="0.01", factor="lr", steps=12)
    source = source.replace("def rate(step):", "class Schedule:\n  def rate(self, step):")
    script.write_text(source.replace("optimizer, rate", "optimizer, Schedule().rate"), "utf-8")
    found = [one for one in findings_of_script(script, tmp_path) if one.rule == "GS321"]
    assert [one.location.line for one in found] == [9]
