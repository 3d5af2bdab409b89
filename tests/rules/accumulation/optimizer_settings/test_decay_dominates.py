"""GS330: weight decay that halves the weights within a few steps, and usual ones."""

from itertools import pairwise

import pytest
import torch
from torch import nn

import gradscope
from tests.rules import watching
from tests.rules.inspecting import marked_lines, only

X = torch.randn(32, 8, generator=torch.Generator().manual_seed(2))


def told(optimizer, sizes=(8, 16, 1), **settings):
    torch.manual_seed(0)
    layers = [nn.Linear(*pair) for pair in pairwise(sizes)]
    model = nn.Sequential(*layers)
    made = optimizer(model.parameters(), **settings)
    found = gradscope.inspect(
        model, X, lambda out: (out - X[:, :1]).square().mean(), optimizer=made
    ).findings
    return [one for one in found if one.rule == "GS330"]


SGD, ADAMW, ADAM = torch.optim.SGD, torch.optim.AdamW, torch.optim.Adam

LARGE = [
    (SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.5}, 0.5),
    (SGD, {"lr": 0.1, "weight_decay": 0.2}, 0.02),
    (SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}, 0.05),
    (ADAMW, {"lr": 0.01, "weight_decay": 10.0}, 0.1),
    (ADAMW, {"lr": 1.0, "weight_decay": 1.0}, 1.0),
]


@pytest.mark.parametrize(("optimizer", "settings", "share"), LARGE)
def test_a_decay_that_removes_weights_is_a_warning(optimizer, settings, share):
    found = only(told(optimizer, **settings), "GS330")
    assert found.severity == "warning"
    assert dict(found.evidence)["removed_share"] == pytest.approx(share)
    # The independent oracle: a weight without a gradient, stepped until half of it is left.
    weight = nn.Parameter(torch.ones(()))
    alone = optimizer([weight], **settings | ({"momentum": 0.0} if optimizer is SGD else {}))
    steps = 0
    while weight.item() > 0.5 and steps < 500:
        weight.grad = torch.zeros(())
        alone.step()
        steps += 1
    if not settings.get("momentum"):
        assert f"half of them in {steps} step" in found.message


USUAL = [
    (SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4}),
    (SGD, {"lr": 1.0, "momentum": 0.9, "weight_decay": 5e-4}),
    (SGD, {"lr": 0.1, "weight_decay": 0.199}),
    (SGD, {"lr": 0.1, "momentum": 0.9}),
    (ADAMW, {"lr": 1e-3, "weight_decay": 0.5}),
    (ADAMW, {"lr": 1e-3, "weight_decay": 1.0}),
    (ADAM, {"lr": 0.1, "weight_decay": 0.5}),
    (SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.5, "maximize": True}),
]


@pytest.mark.parametrize(("optimizer", "settings"), USUAL)
def test_usual_decays_are_fine(optimizer, settings):
    assert not told(optimizer, **settings)


def test_a_ridge_regression_is_fine():
    assert not told(SGD, sizes=(8, 1), lr=0.1, weight_decay=1.0)


SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=DECAY)  # here
for _ in range(6):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    (model(x) - x[:, :1]).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("decay", "count"), [("5.0", 1), ("0.05", 0)])
def test_a_script_is_told_at_its_optimizer(tmp_path, decay, count):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("DECAY", decay))
    found = [one for one in watching.findings_of_script(script, tmp_path) if one.rule == "GS330"]
    assert len(found) == count
    assert {one.location.line for one in found} <= marked_lines(script, "# here")
