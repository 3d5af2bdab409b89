"""GS203: parts that their optimizer holds, and that only another optimizer's loss uses."""

import pytest

from tests.nightly import some_on_push
from tests.rules.watching import findings_of_script

SCRIPT = """
import torch
from torch import nn
from torch.nn import functional


class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.real, self.kind = nn.Linear(4, 8), nn.Linear(8, 1), nn.Linear(8, 3)

    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        return self.real(hidden), self.kind(hidden)


torch.manual_seed(0)
maker, judge = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)), Judge()
own = torch.optim.Adam(judge.parameters(), lr=1e-3)
other = torch.optim.Adam({held}, lr=1e-3)
for step in range(12):
    kinds = torch.arange(12) % 3
    own.zero_grad()
    real, kind = judge(torch.randn(12, 4))
    fake, _ = judge(maker(torch.randn(12, 4)).detach())
    loss = functional.softplus(-real).mean() + functional.softplus(fake).mean()
    {own}
    loss.backward()
    own.step()

    other.zero_grad()
    fake, kind = judge(maker(torch.randn(12, 4)))
    loss = functional.softplus(-fake).mean()
    {other}
    loss.backward()
    other.step()
"""
TERM = "loss = loss + functional.cross_entropy(kind, kinds)"
PARTS = {"own": "pass", "other": TERM, "held": "maker.parameters()"}

CASES = {
    "the term is missing": ({}, 1),
    "only a log reads it": ({"own": "print((kind.data.cpu().numpy().argmax(1) == 0).mean())"}, 1),
    "both have the term": ({"own": TERM}, 0),
    "detached in the loss": ({"own": "loss = loss + kind.detach().mean() * real.mean()"}, 0),
    "its own alone has the term": ({"own": TERM, "other": "pass"}, 0),
    "a term of zero": ({"own": "loss = loss + 0 * functional.cross_entropy(kind, kinds)"}, 0),
    "the other optimizer holds it": (
        {"held": "[*maker.parameters(), *judge.kind.parameters()]"},
        0,
    ),
    "every third step": ({"own": f"if step % 3 == 0: {TERM}"}, 0),
}


@pytest.mark.parametrize("name", some_on_push(CASES, 3))
def test_a_head_that_only_another_loss_uses(name, tmp_path):
    changes, count = CASES[name]
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(**PARTS | changes))
    found = [
        one
        for one in findings_of_script(script, tmp_path)
        if one.rule == "GS203" and one.severity != "note"
    ]
    assert len(found) == count
    for one in found:
        assert one.severity == "warning"
        assert set(one.parameters) == {"judge.kind.weight", "judge.kind.bias"}
        assert "softplus(-real)" in one.location.source
