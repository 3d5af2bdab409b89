"""GS739: targets of cross_entropy that do not add up to 1, and healthy ones."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import gradscope
from tests.rules import watching
from tests.rules.inspecting import marked_lines

GENERATOR = torch.Generator().manual_seed(5)
X = torch.randn(32, 8, generator=GENERATOR)
SEVERAL = (X[:, :6] > 0).float()
ONE = torch.eye(6)[torch.randint(6, (32,), generator=GENERATOR)]
LOGITS = torch.randn(32, 6, generator=GENERATOR)
COUNTS = torch.randint(0, 9, (32, 6), generator=GENERATOR).float()


def told(targets, **settings):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 6))
    report = gradscope.inspect(model, X, lambda out: cross_entropy(out, targets, **settings))
    return [one for one in report.findings if one.rule == "GS739"]


@pytest.mark.parametrize(
    ("targets", "severity"),
    [(SEVERAL, "warning"), (COUNTS, "warning"), (LOGITS, "error"), (ONE - 0.1, "error")],
    ids=["labels", "counts", "logits", "negative smoothing"],
)
def test_targets_that_are_no_probabilities_are_told(targets, severity):
    assert [one.severity for one in told(targets)] == [severity]


HEALTHY = {
    "one class": ONE,
    "smoothed": ONE * 0.9 + 0.1 / 6,
    "mixed": 0.3 * ONE + 0.7 * ONE.flip(0),
    "soft": LOGITS.softmax(1),
    "in bfloat16": LOGITS.softmax(1).bfloat16().float(),
    "weighted": 2 * ONE,
    "masked": ONE * (torch.arange(32) % 2)[:, None],
    "a few errors": torch.where(torch.arange(32)[:, None] == 3, SEVERAL[0] * 0 + 1, ONE),
    "indices": ONE.argmax(1),
}


@pytest.mark.parametrize("targets", HEALTHY.values(), ids=HEALTHY)
def test_probabilities_are_fine(targets):
    assert not told(targets)


def test_the_softmax_cannot_fit_several_labels():
    # What the rule says, by torch's own function: the best output gives each label its share.
    logits = torch.zeros(1, 6, requires_grad=True)
    target = torch.tensor([[1.0, 1.0, 1.0, 0.0, 0.0, 0.0]])
    optimizer = torch.optim.SGD([logits], lr=1.0)
    for _ in range(500):
        optimizer.zero_grad()
        cross_entropy(logits, target).backward()
        optimizer.step()
    torch.testing.assert_close(logits.softmax(1), target / 3, atol=0.01, rtol=0)


SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 6))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()
for _ in range(8):
    x = torch.randn(32, 8)
    labels = TARGETS
    loss = criterion(model(x), labels)  # here
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("targets", "count"), [("(x[:, :6] > 0).float()", 1), ("x[:, :6].softmax(1)", 0)]
)
def test_a_script_is_told_at_its_loss(tmp_path, targets, count):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("TARGETS", targets))
    found = [one for one in watching.findings_of_script(script, tmp_path) if one.rule == "GS739"]
    assert len(found) == count
    assert {one.location.line for one in found} <= marked_lines(script, "# here")
