"""GS207 and GS209: tensors that require grad and that a script holds itself."""

import pytest

from tests.nightly import some_on_push
from tests.rules.watching import findings_of_script

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
{made}
optimizer = torch.optim.Adam({held}, lr=0.01)
for step in range(6):
    features = torch.randn(16, 6)
    {anew}
    output = body(features)
    first, second = (output - features[:, :2]).square().mean(0)
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {after}
"""
WEIGHED = (
    "first * torch.exp(-weights[0]) + weights[0] + second * torch.exp(-weights[1]) + weights[1]"
)
ZEROS = "weights = torch.zeros(2, requires_grad=True)"


def found(tmp_path, made=ZEROS, *, held="body.parameters()", anew="", loss=WEIGHED, after=""):
    script = tmp_path / "script.py"
    script.write_text(
        SCRIPT.format(made=made, held=held, anew=anew or "pass", loss=loss, after=after or "pass")
    )
    findings = findings_of_script(script, tmp_path)
    return [one for one in findings if one.rule in ("GS207", "GS209")]


@pytest.mark.parametrize(
    "made",
    some_on_push(
        [
            ZEROS,
            "weights = nn.Parameter(torch.ones(2))",
            "weights = torch.full((2,), 0.5).requires_grad_()",
            "weights = torch.tensor([0.0, 0.1], requires_grad=True)",
        ],
        3,
    ),
)
def test_learned_weights_of_a_loss_that_no_optimizer_holds_are_an_error(made, tmp_path):
    (finding,) = found(tmp_path, made)
    assert (finding.rule, finding.severity) == ("GS207", "error")
    assert finding.location.source == made
    assert "no optimizer holds it" in finding.message


OF_TRAINER = """
import torch
from torch import nn


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.body = nn.Linear(6, 2)
        self.log_variances = torch.zeros(2, requires_grad=True)
        self.optimizer = torch.optim.Adam({held}, lr=0.01)

    def step(self):
        features = torch.randn(16, 6)
        errors = (self.body(features) - features[:, :2]).square().mean(0)
        loss = (errors * torch.exp(-self.log_variances) + self.log_variances).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


trainer = Trainer()
for _ in range(6):
    trainer.step()
"""


@pytest.mark.parametrize(
    ("held", "count"),
    some_on_push(
        [("self.body.parameters()", 1), ("[*self.body.parameters(), self.log_variances]", 0)], 2
    ),
)
def test_attributes_of_a_trainer_are_judged_likewise(held, count, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(OF_TRAINER.format(held=held))
    findings = [one for one in findings_of_script(script, tmp_path) if one.rule == "GS207"]
    assert len(findings) == count
    assert all(one.location.source.startswith("self.log_variances =") for one in findings)


@pytest.mark.parametrize(
    "chosen",
    some_on_push(
        [
            {"held": "[*body.parameters(), weights]"},
            {"after": "weights.data.sub_(0.01)"},
            {"after": "with torch.no_grad(): weights.sub_(0.01)"},
            {"after": "for p in (weights,): p.data -= 0.01 * p.grad"},
            {"after": "with torch.no_grad(): torch._foreach_mul_([weights], 0.9)"},
            {"after": "print(weights.grad)"},
            {"made": "weights = torch.zeros(2)"},
        ],
        2,
    ),
    ids=["held", "moved", "moved in place", "moved by hand", "in a list", "read", "constant"],
)
def test_weights_that_something_moves_are_no_error(chosen, tmp_path):
    assert all(one.severity == "note" for one in found(tmp_path, **chosen))


@pytest.mark.parametrize(
    "chosen",
    some_on_push(
        [
            {"made": "", "anew": ZEROS},
            {"made": "weights = torch.randn(2, requires_grad=True)"},
            {
                "made": "weights = torch.ones(16, 6, requires_grad=True)",
                "anew": "features = weights",
                "loss": "first + second",
            },
        ],
        2,
    ),
    ids=["made anew", "random", "an input"],
)
def test_tensors_that_may_be_data_are_notes_at_most(chosen, tmp_path):
    assert all(one.severity == "note" for one in found(tmp_path, **chosen))
