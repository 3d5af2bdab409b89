"""Hooks on parameters: registered once, or again and again."""

import pytest

from tests.nightly import some_on_push
from tests.rules.watching import findings_of_script

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
seen = []


def register():
    return model.weight.register_hook({hook})


handle = register()
for step in range({steps}):
    if step % 10 == 0 and step:
        {each_epoch}
    optimizer.zero_grad()
    model(torch.randn(16, 6)).square().mean().backward()
    optimizer.step()
"""
HALVES = "lambda grad: 0.5 * grad"
AGAIN = "register()"


def said(tmp_path, hook, each_epoch, *, steps=41):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(hook=hook, each_epoch=each_epoch, steps=steps))
    return [one for one in findings_of_script(script, tmp_path) if one.rule == "GS505"]


def test_hook_of_every_epoch_is_an_error_at_the_line_that_registers_it(tmp_path):
    (finding,) = said(tmp_path, HALVES, AGAIN)
    assert (finding.severity, dict(finding.evidence)["hooks"]) == ("error", 5)
    assert finding.location.source == "return model.weight.register_hook(lambda grad: 0.5 * grad)"


@pytest.mark.parametrize(
    ("hook", "each_epoch"),
    some_on_push(
        [
            (HALVES, "handle.remove(); handle = register()"),
            (HALVES, "pass"),
            ("lambda grad: seen.append(float(grad.norm()))", AGAIN),  # it only looks
        ],
        2,
    ),
)
def test_hooks_that_are_removed_or_that_change_nothing_are_not_found(hook, each_epoch, tmp_path):
    assert said(tmp_path, hook, each_epoch) == []


@pytest.mark.parametrize(("steps", "found"), [(30, 0), (31, 1)])
def test_it_takes_four_hooks(steps, found, tmp_path):
    assert len(said(tmp_path, HALVES, AGAIN, steps=steps)) == found


SIGNED = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2))
for parameter in [*model.parameters()][{hooked}]:
    parameter.register_hook(
        {hook}
    )
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range({steps}):
    optimizer.zero_grad()
    features = torch.randn(16, 6)
    nn.functional.cross_entropy(model(features), (features[:, 0] > 0).long()).backward()
    optimizer.step()
"""


def of_one_sign(tmp_path, hook, *, hooked=":", steps=25):
    script = tmp_path / "script.py"
    script.write_text(SIGNED.format(hook=hook, hooked=hooked, steps=steps))
    return [one for one in findings_of_script(script, tmp_path) if one.rule == "GS505"]


@pytest.mark.parametrize(
    "hook",
    some_on_push(
        [
            "lambda grad: torch.clamp(grad, 0, 1)",
            "lambda grad: torch.relu(grad)",
            "lambda grad: grad.clamp(max=0.0)",
        ],
        2,
    ),
)
def test_hook_that_leaves_one_sign_is_an_error_at_its_line(hook, tmp_path):
    (finding,) = of_one_sign(tmp_path, hook)
    assert finding.severity == "error"
    assert finding.location.source == hook
    evidence = dict(finding.evidence)
    assert evidence["parameters"] == 4
    assert evidence["zeros"] > evidence["limit"]


@pytest.mark.parametrize(
    ("hook", "chosen"),
    some_on_push(
        [
            ("lambda grad: grad.clamp(-1e-4, 1e-4)", {}),
            ("lambda grad: grad * (grad.abs() > 1e-3)", {}),
            ("lambda grad: torch.zeros_like(grad)", {}),
            ("lambda grad: torch.nan_to_num(grad)", {}),
            ("lambda grad: torch.clamp(grad, 0, 1)", {"hooked": "2:"}),
            ("lambda grad: torch.clamp(grad, 0, 1)", {"steps": 20}),
        ],
        3,
    ),
    ids=["both", "sparse", "nothing", "NaN", "one layer", "too short"],
)
def test_other_hooks_are_not_found(hook, chosen, tmp_path):
    assert of_one_sign(tmp_path, hook, **chosen) == []
