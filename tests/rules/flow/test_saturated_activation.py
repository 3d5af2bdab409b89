"""GS106: activations at the ends of their range."""

import dataclasses
import math

import pytest
import torch
from torch import nn

import gradscope
from gradscope.recording.evidence.forward import SaturationRecord
from gradscope.rules.engine import judge
from gradscope.rules.settings import Settings
from tests.nightly import some_on_push
from tests.rules.inspecting import only


def network(activation, gain=1.0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), activation, nn.Linear(32, 3))
    with torch.no_grad():
        model[0].weight.mul_(gain)
    return model


def report_of(model, rows=64):
    x = torch.randn(rows, 8, generator=torch.Generator().manual_seed(1))
    return gradscope.inspect(model, (x, torch.arange(rows) % 3), "cross-entropy")


def codes(report):
    return {one.rule for one in report.findings}


class Attention(nn.Module):
    """One head, whose scores are divided or not."""

    def __init__(self, gain, causal=False):
        super().__init__()
        self.qkv = nn.Linear(8, 96)
        self.out = nn.Linear(32, 3)
        self.gain, self.causal = gain, causal

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = self.gain * (q @ k.T)
        if self.causal:
            scores = scores.masked_fill(torch.ones(len(x), len(x)).triu(1) > 0, float("-inf"))
        return self.out(torch.softmax(scores, -1) @ v)


@pytest.mark.parametrize("activation", [nn.Tanh(), nn.Sigmoid()])
def test_weights_that_are_too_large_saturate(activation):
    found = only(report_of(network(activation, 40)).findings, "GS106")
    assert found.severity == "warning"
    assert dict(found.evidence)["limit"] == 0.5
    assert found.parameters == ("0.weight", "0.bias")


def test_attention_without_its_scaling_saturates():
    found = only(report_of(Attention(100)).findings, "GS106")
    assert "softmax is saturated" in found.message
    assert "square root" in found.remedy


HEALTHY = {
    "tanh": lambda: network(nn.Tanh()),
    "sigmoid": lambda: network(nn.Sigmoid()),
    "attention": lambda: Attention(8**-0.5),
    "causal attention": lambda: Attention(8**-0.5, causal=True),
    "the loss head": lambda: nn.Sequential(network(nn.Tanh()), nn.Linear(3, 3), Certain()),
}


class Certain(nn.Module):
    """Certain probabilities in front of the loss."""

    def forward(self, x):
        return torch.sigmoid(1000 * x)


@pytest.mark.parametrize("model", some_on_push(HEALTHY.values(), 3), ids=HEALTHY)
def test_healthy_activations_are_left_alone(model):
    torch.manual_seed(0)
    assert "GS106" not in codes(report_of(model()))


class HardChoice(nn.Module):
    """Straight-through: the forward chooses, the softmax lends its gradient."""

    def __init__(self):
        super().__init__()
        self.score, self.head = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(torch.nn.functional.gumbel_softmax(self.score(x), tau=0.01, hard=True))


def test_a_straight_through_choice_is_left_alone():
    torch.manual_seed(0)
    assert "GS106" not in codes(report_of(HardChoice()))


class Gated(nn.Module):
    """A branch that a learnt gate keeps shut at the start."""

    def __init__(self):
        super().__init__()
        self.branch, self.head = nn.Linear(8, 8), nn.Linear(8, 3)
        self.gate = nn.Parameter(torch.tensor([-9.0]))

    def forward(self, x):
        return self.head(x + torch.sigmoid(self.gate) * self.branch(x))


def test_a_gate_of_one_number_is_left_alone():
    torch.manual_seed(0)
    assert "GS106" not in codes(report_of(Gated()))


@pytest.mark.parametrize(
    ("elements", "saturated", "fires"),
    [(100, 49, False), (100, 50, True), (100, 51, True), (16, 16, True), (15, 15, False)],
)
def test_the_limit_is_a_share_of_enough_elements(elements, saturated, fires):
    recording = report_of(network(nn.Tanh())).recording
    changed = dataclasses.replace(
        recording,
        evidence=tuple(
            dataclasses.replace(one, elements=elements, saturated=saturated)
            if isinstance(one, SaturationRecord)
            else one
            for one in recording.evidence
        ),
    )
    assert ("GS106" in {one.rule for one in judge(changed).findings}) is fires


def judged(recording, **thresholds):
    settings = Settings(select=("GS106",), thresholds={"saturated-activation": thresholds})
    return judge(recording, settings).findings


def test_a_softmax_that_is_not_trained_has_a_limit_of_its_own():
    torch.manual_seed(0)
    recording = report_of(Attention(4)).recording
    (found,) = judged(recording, fresh_share=0.01, share=2.0)
    number = dict(found.evidence)["share"]
    assert 0.01 < number < 1
    assert judged(recording, fresh_share=number, share=2.0)
    assert not judged(recording, fresh_share=math.nextafter(number, math.inf), share=0.0)


def test_it_is_an_error_below_the_ratio_that_passes():
    recording = report_of(network(nn.Tanh(), 1e3)).recording
    whole = dataclasses.replace(
        recording,
        evidence=tuple(
            dataclasses.replace(one, saturated=one.elements)
            if isinstance(one, SaturationRecord)
            else one
            for one in recording.evidence
        ),
    )
    (node,) = (one for one in recording.nodes if one.operation == "TanhBackward0" and not one.graph)
    norms = {
        stat.node: stat.gradient.norm
        for stat in recording.tensor_stats
        if stat.step == 0 and stat.gradient is not None
    }
    behind = [edge.target for edge in recording.edges if edge.source == node.index]
    number = norms[behind[0]] / norms[node.index]
    (at,) = judged(whole, passed=number)
    (above,) = judged(whole, passed=math.nextafter(number, math.inf))
    assert (at.severity, above.severity) == ("warning", "error")


class Loop(nn.Module):
    """A cell that runs over time: its activation is one line."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.Linear(16, 8), nn.Linear(8, 3)

    def forward(self, x):
        state = torch.zeros(len(x), 8)
        for _ in range(5):
            state = torch.tanh(99 * self.cell(torch.cat([x, state], -1)))
        return self.head(state)


def test_calls_of_one_line_are_one_finding():
    torch.manual_seed(0)
    found = only(report_of(Loop()).findings, "GS106")
    assert dict(found.evidence)["elements"] == 64 * 8 * 5


def test_saturation_that_zeroes_gradients_is_told_with_them():
    found = only(report_of(network(nn.Sigmoid(), 1e6)).findings, "GS204")
    assert "GS106" in {one.rule for one in found.consequences}


def test_without_a_second_forward_the_rule_does_not_run():
    report = gradscope.inspect(network(nn.Tanh(), 40), torch.randn(9, 8), probe_steps=0)
    assert "GS106" in {one.rule for one in judge(report.recording).skipped}


SOFT_STEPS = """
import torch
from torch import nn

class Bins(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.edges = nn.Parameter(torch.linspace(-2, 2, 6))
        self.out = nn.Linear(6, 1)

    def forward(self, x):
        return self.out(torch.sigmoid(SCALE * (INPUT - self.edges)))

model = Bins()
torch.manual_seed(0)
batch = torch.randn(64, 6)

def loss_fn(output, batch):
    return (output - 1).square().mean()
"""


@pytest.mark.parametrize(
    ("scale", "given", "severity"),
    [("8", "x", "note"), ("80", "self.first(x)", "warning")],
)
def test_soft_steps_on_data_are_meant_to_be_flat(inspect_file, scale, given, severity):
    text = SOFT_STEPS.replace("SCALE", scale).replace("INPUT", given)
    found = [one for one in inspect_file(text).findings if one.rule == "GS106"]
    assert [one.severity for one in found] == [severity]
