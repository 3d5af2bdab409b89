"""Edits after which the finding is gone, but the program no longer does what it should."""

from textwrap import dedent

import pytest

from gradscope.fixes.verification import result_of
from gradscope.source_edits.text_edits import edits_between
from tests.nightly import some_on_push
from tests.rules.inspecting import only, report_of_file

PROGRAM = """
import torch
from torch import nn
import torch.nn.functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.body(x).tanh()).squeeze(-1)

def build_model():
    torch.manual_seed(0)
    return Net()

def build_batch():
    x = torch.randn(8, 4)
    x[3] = x[2]
    return x, torch.randn(8)

def compute_loss(model, batch):
    x, y = batch
    fit = F.mse_loss(model(x), y)
    body = model.body(x)
    apart = torch.sqrt((body[::2] - body[1::2]).square().sum(-1)).mean()
    return fit + apart
"""

HIDING = {
    "term_deleted": ("return fit + apart", "return fit"),
    "term_times_zero": ("return fit + apart", "return fit + 0 * apart.nan_to_num().detach()"),
    "term_detached": ("return fit + apart", "return fit + apart.detach()"),
    "parameters_frozen": (
        "    return Net()",
        "    net = Net()\n    net.body.requires_grad_(False)\n    return net",
    ),
    "nothing_learns": ("return fit + apart", "return (fit + apart).detach().requires_grad_()"),
    "loss_of_zero": ("return fit + apart", "return 0 * fit + 0 * apart.nan_to_num()"),
}


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Returns the result of replacing a part of the program."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "program.py"

    def result(old, new):
        text = dedent(PROGRAM).lstrip()
        path.write_text(text)
        before = report_of_file(path)
        edited = text.replace(old, new)
        assert edited != text
        path.write_text(edited)
        after = report_of_file(path)
        edits = edits_between(str(path), text, edited)
        return result_of(only(before.findings, "GS103"), before, after, edits)

    return result


@pytest.mark.parametrize("name", some_on_push(HIDING, 3))
def test_an_edit_that_hides_is_refused(name, results):
    found = results(*HIDING[name])
    assert not found.is_verified, found.text


def test_an_edit_that_repairs_is_not(results):
    found = results(".sum(-1))", ".sum(-1) + 1e-8)")
    assert found.is_verified, found.text
