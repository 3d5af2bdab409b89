"""Hooks on parameters: registered once, or again and again."""

import pytest

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
    [
        (HALVES, "handle.remove(); handle = register()"),
        (HALVES, "pass"),
        ("lambda grad: seen.append(float(grad.norm()))", AGAIN),  # it only looks
    ],
)
def test_hooks_that_are_removed_or_that_change_nothing_are_not_found(hook, each_epoch, tmp_path):
    assert said(tmp_path, hook, each_epoch) == []


@pytest.mark.parametrize(("steps", "found"), [(30, 0), (31, 1)])
def test_it_takes_four_hooks(steps, found, tmp_path):
    assert len(said(tmp_path, HALVES, AGAIN, steps=steps)) == found
