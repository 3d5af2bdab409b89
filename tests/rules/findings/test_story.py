"""A run that ends in NaN is one finding, which tells the steps before it in order."""

import pytest

from tests.nightly import some_on_push
from tests.rules.watching import findings_of_script

START = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(70):
    x = torch.randn(16, 8)
    target = torch.randint(0, 4, (16,))
"""

END = """
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # step
"""

DIVERGES = """
    if step == 40:
        optimizer.param_groups[0]["lr"] = 500.0
    loss = (model(x) - x[:, :4]).square().mean()
"""

SPIKES = """
    probabilities = torch.softmax(model(x * (1 + 30 * (step > 40))), -1)
    loss = -torch.log(probabilities[torch.arange(16), target]).mean()  # breaks
"""

BROKEN_BATCH = """
    if step == 40:
        x[3, 2] = float("nan")
    loss = nn.functional.cross_entropy(model(x), target)
"""

RAISED_LONG_BEFORE = """
    if step == 2:
        optimizer.param_groups[0]["lr"] = 0.2
    if step == 60:
        x[3, 2] = float("nan")
    loss = nn.functional.cross_entropy(model(x), target)
"""


def found(tmp_path, text):
    script = tmp_path / "train.py"
    script.write_text(START + text + END)
    (finding,) = findings_of_script(script, tmp_path)
    return finding, script.read_text().splitlines()


def test_a_divergence_is_told_from_the_learning_rate_on(tmp_path):
    finding, lines = found(tmp_path, DIVERGES)
    assert (finding.rule, finding.severity) == ("GS104", "error")
    rate = "before this, step 40 raises the learning rate of optimizer from 0.05 to 500"
    assert rate in finding.message
    assert finding.message.index(rate) < finding.message.index("; the gradient of step 41")
    assert any(lines[one.line - 1].endswith("# step") for one in finding.related)


def test_a_spike_and_the_loss_that_it_breaks_are_one_finding(tmp_path):
    finding, lines = found(tmp_path, SPIKES)
    assert finding.rule == "GS104" and lines[finding.location.line - 1].endswith("# breaks")
    assert "log makes infinity" in finding.message
    assert "before this, the gradient of step 41 has a norm of" in finding.message
    assert "GS107" in {one.rule for one in finding.consequences}


@pytest.mark.parametrize("text", some_on_push([BROKEN_BATCH, RAISED_LONG_BEFORE], 2))
def test_what_does_not_lead_to_it_is_left_out(tmp_path, text):
    finding, _ = found(tmp_path, text)
    assert finding.rule == "GS104" and "before this" not in finding.message
