"""GS332: momentum that never fades and swapped betas, and usual ones."""

import pytest
import torch
from torch import nn

import gradscope
from tests.rules import watching
from tests.rules.inspecting import marked_lines, only

X = torch.randn(32, 8, generator=torch.Generator().manual_seed(2))

SGD, ADAM, ADAMW, NADAM = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
)


def told(optimizer, **settings):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    made = optimizer(model.parameters(), **settings)
    found = gradscope.inspect(
        model, X, lambda out: (out - X[:, :1]).square().mean(), optimizer=made
    ).findings
    return [one for one in found if one.rule == "GS332"]


@pytest.mark.parametrize("momentum", [1.0, 1.5, 9.0])
def test_a_momentum_of_one_or_more_is_an_error(momentum):
    found = only(told(SGD, lr=0.01, momentum=momentum), "GS332")
    assert found.severity == "error"
    assert ("without bound" in found.message) == (momentum > 1)
    # The independent oracle: after one gradient of 1 and none since, a weight moves on for ever.
    weight = nn.Parameter(torch.zeros(()))
    optimizer = SGD([weight], lr=1.0, momentum=momentum)
    weight.grad = torch.ones(())
    moved = []
    for _ in range(50):
        before = weight.item()
        optimizer.step()
        weight.grad = torch.zeros(())
        moved.append(before - weight.item())
    assert min(moved) >= 1


@pytest.mark.parametrize("optimizer", [ADAM, ADAMW, NADAM])
@pytest.mark.parametrize("betas", [(0.999, 0.9), (0.95, 0.5), (0.9, 0.8)])
def test_swapped_betas_are_a_warning(optimizer, betas):
    found = only(told(optimizer, lr=1e-3, betas=betas), "GS332")
    assert found.severity == "warning"
    assert f"({betas[1]:g}, {betas[0]:g})" in found.remedy


USUAL = [
    (SGD, {"lr": 0.01}),
    (SGD, {"lr": 0.01, "momentum": 0.999}),
    (SGD, {"lr": 0.01, "momentum": 0.9, "nesterov": True}),
    (ADAM, {"betas": (0.9, 0.999)}),
    (ADAM, {"betas": (0.5, 0.999)}),
    (ADAM, {"betas": (0.0, 0.9)}),
    (ADAM, {"betas": (0.9, 0.0)}),
    (ADAMW, {"betas": (0.95, 0.95)}),
    (ADAMW, {"betas": (0.9, 0.82)}),
    (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.9}),
]


@pytest.mark.parametrize(("optimizer", "settings"), USUAL)
def test_usual_settings_are_fine(optimizer, settings):
    assert not told(optimizer, **settings)


SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.OPTIMIZER  # here
for _ in range(6):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    (model(x) - x[:, :1]).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("optimizer", "count"),
    [
        ("SGD(model.parameters(), lr=1e-3, momentum=1)", 1),
        ("AdamW(model.parameters(), betas=(0.99, 0.9))", 1),
        ("AdamW(model.parameters(), betas=(0.9, 0.99))", 0),
    ],
)
def test_a_script_is_told_at_its_optimizer(tmp_path, optimizer, count):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("OPTIMIZER", optimizer))
    found = [one for one in watching.findings_of_script(script, tmp_path) if one.rule == "GS332"]
    assert len(found) == count
    assert {one.location.line for one in found} <= marked_lines(script, "# here")
