"""Evidence beside a cut or a dead value that tells whether it was meant."""

import pytest

from tests.nightly import some_on_push
from tests.rules.inspecting import only, report_of_file

_HEAD = """
import torch
from torch import nn
from torch.nn import functional as F
"""

_END = """
model = Net()
batch = (torch.randn(6, 4), torch.randn(6, 4))
loss_fn = F.mse_loss
"""


def _findings(folder, body):
    path = folder / "target.py"
    path.write_text(_HEAD + body + _END)
    return report_of_file(path).findings


_FROZEN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 9))
        self.base.requires_grad_({base})
        self.proj = nn.Linear(9, 4)
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        with torch.no_grad():
            h = self.base(x)
            {inside}
        {outside}
        return self.head(h)
"""


def test_layer_that_shares_the_block_of_a_frozen_network_is_an_error(tmp_path):
    body = _FROZEN.format(base=False, inside="h = self.proj(h)", outside="")
    found = only(_findings(tmp_path, body), "GS201")
    assert found.severity == "error"
    assert "only base is frozen by requires_grad" in found.message


def test_frozen_network_alone_is_no_cut(tmp_path):
    body = _FROZEN.format(base=False, inside="", outside="h = self.proj(h)")
    assert "GS201" not in [one.rule for one in _findings(tmp_path, body)]


_OVERWRITTEN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x):
        h = self.first(x)
        h = self.second({given})
        return h
"""


def test_value_that_is_overwritten_unread_is_an_error_at_that_line(tmp_path):
    found = only(_findings(tmp_path, _OVERWRITTEN.format(given="x")), "GS203")
    assert (found.severity, found.location.source) == ("error", "h = self.second(x)")


def test_value_that_the_next_assignment_reads_is_none(tmp_path):
    findings = _findings(tmp_path, _OVERWRITTEN.format(given="h"))
    assert "GS203" not in [one.rule for one in findings]


_ESTIMATOR = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.outer = nn.Linear(4, 4)

    def forward(self, x):
        soft = torch.sigmoid(self.inner(x))
        hard = (soft > 0.5).float()
        gate = {gate}
        return self.outer(gate)
"""


@pytest.mark.parametrize(
    ("gate", "codes"),
    some_on_push(
        [
            ("hard - soft + soft.detach()", {"GS505"}),
            ("hard + soft - soft.detach()", set()),
            ("soft + (hard - soft).detach()", set()),
            ("soft - soft.detach() + hard", set()),
        ],
        {0, 1},
    ),
)
def test_straight_through_estimator_with_swapped_signs(tmp_path, gate, codes):
    findings = _findings(tmp_path, _ESTIMATOR.format(gate=gate))
    assert {one.rule for one in findings if one.severity == "error"} == codes


_REVERSAL = """
class {name}(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return {returned}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.outer = nn.Linear(4, 4)

    def forward(self, x):
        return self.outer({name}.apply(self.inner(x)))
"""


@pytest.mark.parametrize(
    ("name", "returned", "is_wrong"),
    some_on_push(
        [
            ("ReverseGrad", "0.5 * gradient", True),
            ("ReverseGrad", "-0.5 * gradient", False),
            ("ScaleGrad", "0.5 * gradient", False),
        ],
        {0, 1},
    ),
)
def test_reversal_that_keeps_the_sign(tmp_path, name, returned, is_wrong):
    findings = _findings(tmp_path, _REVERSAL.format(name=name, returned=returned))
    assert ("GS505" in [one.rule for one in findings]) == is_wrong


_RATIO = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(4, {width})
        self.value = nn.Linear(4, 4)

    def forward(self, x):
        weight = torch.sigmoid(self.router(x))
        weight = weight / weight.sum(dim=-1, keepdim=True)
        return weight[:, :1] * self.value(x)
"""


@pytest.mark.parametrize(("width", "is_wrong"), [(1, True), (2, False)])
def test_ratio_to_the_sum_over_one_element(tmp_path, width, is_wrong):
    findings = _findings(tmp_path, _RATIO.format(width=width))
    errors = [one for one in findings if one.rule == "GS204" and one.severity == "error"]
    assert bool(errors) == is_wrong
