"""GS105: units that no row of the batch activates."""

import dataclasses

import pytest
import torch
from torch import nn

import gradscope
from gradscope.recording.evidence.forward import UnitRecord
from gradscope.rules.engine import judge
from tests.nightly import some_on_push
from tests.rules.inspecting import only


def network(dead, units=100, activation=None):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, units),
        activation or nn.ReLU(),
        nn.Linear(units, 20),
        nn.Tanh(),
        nn.Linear(20, 3),
    )
    with torch.no_grad():
        model[0].bias.fill_(5)
        model[0].bias[:dead].fill_(-50)
    return model


def report_of(model, rows=128):
    x = torch.randn(rows, 8, generator=torch.Generator().manual_seed(1))
    return gradscope.inspect(model, (x, torch.arange(rows) % 3), "cross-entropy")


def with_units(recording, **changes):
    return dataclasses.replace(
        recording,
        evidence=tuple(
            dataclasses.replace(one, **changes) if isinstance(one, UnitRecord) else one
            for one in recording.evidence
        ),
    )


def severity(recording):
    found = [one for one in judge(recording).findings if one.rule == "GS105"]
    return found[0].severity if found else None


def test_units_are_counted_and_their_layer_is_named():
    found = only(report_of(network(80)).findings, "GS105")
    assert found.severity == "warning"
    assert "80 of 100 units of 0 are inactive" in found.message
    assert found.parameters == ("0.weight", "0.bias")
    evidence = dict(found.evidence)
    assert (evidence["share"], evidence["limit"], evidence["rows"]) == (0.8, 0.65, 128)


@pytest.mark.parametrize(
    ("inactive", "expected"),
    some_on_push(
        [(49, None), (50, "note"), (64, "note"), (65, "warning"), (89, "warning"), (90, "error")],
        {0, 3},
    ),
)
def test_levels_by_the_share_of_a_layer(inactive, expected):
    recording = report_of(network(80)).recording
    assert severity(with_units(recording, inactive=inactive)) == expected


@pytest.mark.parametrize(
    ("rows", "samples", "inactive", "expected"),
    some_on_push(
        [
            (64, 64, 90, "error"),
            (63, 63, 90, "note"),
            (63, 63, 89, None),
            (8, 8, 100, "note"),
            (7, 7, 100, None),
            (4096, 4, 90, "error"),
            (4096, 3, 90, "note"),
        ],
        {0, 1, 2},
    ),
)
def test_few_rows_or_samples_give_a_note_at_most(rows, samples, inactive, expected):
    recording = report_of(network(80)).recording
    changed = with_units(recording, rows=rows, samples=samples, inactive=inactive)
    assert severity(changed) == expected


def test_half_the_units_of_a_deep_stack_whose_values_shrink_are_a_consequence():
    torch.manual_seed(0)
    layers = [layer for _ in range(30) for layer in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(nn.Linear(8, 64), *layers, nn.Linear(64, 3))
    batch = torch.randn(128, 8), torch.arange(128) % 3
    (found,) = gradscope.inspect(model, batch, nn.functional.cross_entropy).findings
    assert found.rule == "GS102"
    assert "GS105" in {one.rule for one in found.consequences}


def test_a_layer_that_is_dead_altogether_is_part_of_the_gradient_that_is_zero():
    found = only(report_of(network(100)).findings, "GS204")
    assert "GS105" in {one.rule for one in found.consequences}


HEALTHY = {
    "He's initialisation": lambda: network(0),
    "leaky": lambda: network(80, activation=nn.LeakyReLU()),
    "GELU": lambda: network(80, activation=nn.GELU()),
    "batch norm": lambda: nn.Sequential(
        nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 3)
    ),
}


@pytest.mark.parametrize("model", some_on_push(HEALTHY.values(), 2), ids=HEALTHY)
def test_healthy_layers_are_left_alone(model):
    torch.manual_seed(0)
    assert "GS105" not in {one.rule for one in report_of(model()).findings}


def test_a_frozen_backbone_is_left_alone():
    model = network(95)
    model[0].requires_grad_(False)
    assert "GS105" not in {one.rule for one in report_of(model).findings}


class PreActivation(nn.Module):
    """A residual block that starts with its activation: a skip connection passes that by."""

    def __init__(self, *, skips):
        super().__init__()
        self.first, self.inner, self.head = nn.Linear(8, 64), nn.Linear(64, 64), nn.Linear(64, 3)
        self.skips = skips
        nn.init.constant_(self.first.bias[:60], -50)

    def forward(self, x):
        x = self.first(x)
        inner = self.inner(torch.relu(x))
        return self.head(x + inner if self.skips else inner)


@pytest.mark.parametrize("skips", [False, True])
def test_units_whose_gradient_comes_by_a_skip_connection_are_not_dead(skips):
    torch.manual_seed(0)
    model = PreActivation(skips=skips)
    assert ("GS105" in {one.rule for one in report_of(model).findings}) != skips
    x = torch.randn(128, 8, generator=torch.Generator().manual_seed(1))
    nn.functional.cross_entropy(model(x), torch.arange(128) % 3).backward()
    assert bool(model.first.bias.grad[:60].any()) == skips


@pytest.mark.parametrize(
    ("units", "inactive", "expected"), [(15, 13, "note"), (16, 13, "warning"), (8, 8, "error")]
)
def test_a_layer_of_few_units_that_keeps_some_gives_a_note(units, inactive, expected):
    recording = report_of(network(80)).recording
    assert severity(with_units(recording, units=units, inactive=inactive)) == expected


class Experts(nn.Module):
    """Two experts, of which one gets hardly any row."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(8, 64) for _ in range(2))
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        first, second = (
            torch.relu(e(rows)) for e, rows in zip(self.experts, (x[:-3], x[-3:]), strict=True)
        )
        return self.head(torch.cat([first, second]))


def test_an_idle_expert_is_left_alone():
    torch.manual_seed(0)
    assert "GS105" not in {one.rule for one in report_of(Experts()).findings}


class Hinge(nn.Module):
    """A ranking loss inside of the model, all of whose margins are kept."""

    def __init__(self):
        super().__init__()
        self.score = nn.Linear(8, 4)

    def forward(self, x):
        score = self.score(x)
        return score.square().mean() + torch.relu(score - score.detach() - 1).sum()


def test_a_hinge_whose_margins_are_kept_is_no_dead_unit():
    torch.manual_seed(0)
    assert "GS105" not in {
        one.rule for one in gradscope.inspect(Hinge(), torch.randn(99, 8)).findings
    }


class Stack(nn.Module):
    """Layers of one loop: their activation is one line."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.head = nn.Linear(8, 3)
        for layer in self.layers:
            nn.init.constant_(layer.bias[:7], -50)

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return self.head(x)


def test_layers_on_one_line_are_one_finding():
    torch.manual_seed(0)
    found = only(report_of(Stack()).findings, "GS105")
    assert found.modules == ("layers.0", "layers.1", "layers.2")
    assert found.count == 3


def test_without_a_second_forward_the_rule_does_not_run():
    report = gradscope.inspect(network(90), torch.randn(99, 8), probe_steps=0)
    assert "GS105" in {one.rule for one in judge(report.recording).skipped}
