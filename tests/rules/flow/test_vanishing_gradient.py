"""GS102: what vanishes, and what only looks so."""

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional

from gradscope.analysis.spine import Point, Trend
from gradscope.rules.context import RuleContext
from gradscope.rules.flow.short_memory_horizon import ShortMemoryHorizon
from gradscope.rules.flow.vanishing_gradient import VanishingGradient
from gradscope.rules.helpers.growth_position import pace
from tests.nightly import some_on_push
from tests.rules.flow.test_exploding_gradient import CLASSES, Loop, recording_of, stack
from tests.rules.flow.test_spine import Scaled


def found_in(recording, rule=None):
    rule = rule or VanishingGradient()
    context = RuleContext(recording)
    return [] if rule.skip_reason(context) else list(rule.check(context))


@pytest.mark.parametrize(
    ("decades", "level", "under_sgd"),
    [
        (1.99, None, None),
        (2.01, "note", "warning"),
        (2.99, "note", "warning"),
        (3.01, "warning", "error"),
        (5.99, "warning", "error"),
        (6.01, "error", "error"),
    ],
)
def test_levels_by_decades_and_optimizer(decades, level, under_sgd):
    batch = (torch.randn(4, 6), torch.randn(4, 6))
    model = Scaled(10 ** (-decades / 9), depth=10)
    recording = recording_of(model, batch, functional.mse_loss, steps=0)
    for optimizer, expected in ((None, level), ("Adam(lr=0.1)", level), ("SGD(lr=0.1)", under_sgd)):
        target = dataclasses.replace(recording.target, optimizer=optimizer)
        found = found_in(dataclasses.replace(recording, target=target))
        assert [finding.severity for finding in found] == ([expected] if expected else [])
        if found:
            assert dict(found[0].evidence)["decades"] == pytest.approx(decades, abs=1e-3)


def test_the_layers_that_starve_are_named():
    (found,) = found_in(recording_of(*stack(0.1)))
    assert "layers.0.weight" in found.parameters
    assert "layers.9.weight" not in found.parameters
    assert "head.weight" not in found.parameters


@pytest.mark.parametrize(
    ("levels", "words"),
    [((3.0, 2.0, 0.0), ": 32 times smaller with each of 3 layers"), ((3.0, 0.0), "")],
)
def test_the_pace_is_told_of_more_than_two_layers(levels, words):
    points = tuple(Point(node=None, level=level) for level in levels)
    assert pace(Trend(points, points), "smaller", "layer") == words


class ActorCritic(nn.Module):
    """Two networks side by side, of which the first one's gradient fades."""

    def __init__(self):
        super().__init__()
        self.actor, self.critic = Scaled(10 ** (-4 / 11), depth=12), Scaled(1.0, depth=11)

    def forward(self, x):
        return self.actor(x).sum() + self.critic(x).sum()


def test_what_is_as_deep_in_another_branch_of_the_loss_does_not_starve():
    batch = (torch.randn(4, 6), None)
    (found,) = found_in(recording_of(ActorCritic(), batch, lambda out, _: out, steps=0))
    assert found.parameters
    assert {name.split(".")[0] for name in found.parameters} == {"actor"}


class Deep(nn.Module):
    """Layers with an activation between."""

    def __init__(self, activation, depth=14, width=24):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, 4)
        self.activation = activation

    def forward(self, x):
        for layer in self.layers:
            x = self.activation(layer(x))
        return self.head(x)


@pytest.mark.parametrize(
    ("activation", "position"),
    some_on_push(
        [(torch.sigmoid, "Sigmoid"), (torch.relu, "Addmm"), (torch.tanh, "Addmm")], {0, 1}
    ),
    ids=["sigmoid", "relu", "tanh"],
)
def test_the_operation_that_takes_most_away_is_told(activation, position):
    torch.manual_seed(0)
    (found,) = found_in(recording_of(Deep(activation), (torch.randn(16, 24), CLASSES)))
    assert dict(found.evidence)["operation"] == position
    assert ("sigmoid" in found.remedy) is (position == "Sigmoid")


def test_a_gradient_that_underflows_to_zero_has_vanished():
    torch.manual_seed(0)
    recording = recording_of(Deep(torch.sigmoid, depth=80), (torch.randn(16, 24), CLASSES))
    assert any(stat.reach == "zero" for stat in recording.parameter_stats)
    (found,) = found_in(recording)
    assert found.severity == "error"
    assert "layers.0.weight" in found.parameters


def test_he_initialisation_is_level():
    model = Deep(torch.relu, depth=20, width=64)
    torch.manual_seed(0)
    for layer in model.layers:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
    assert found_in(recording_of(model, (torch.randn(16, 64), CLASSES))) == []


class Block(nn.Module):
    """A residual block whose branch starts closed in one of the usual ways."""

    def __init__(self, kind):
        super().__init__()
        self.norm = nn.LayerNorm(16) if kind != "rezero" else nn.Identity()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        start = {"rezero": 0.0, "layerscale": 1e-6}.get(kind, 1.0)
        self.scale = nn.Parameter(torch.full((16,), start))
        if kind == "zero-init":
            nn.init.zeros_(self.down.weight)
            nn.init.zeros_(self.down.bias)

    def forward(self, x):
        return x + self.scale * self.down(functional.gelu(self.up(self.norm(x))))


@pytest.mark.parametrize("kind", some_on_push(["rezero", "layerscale", "zero-init", "plain"], {0}))
def test_deep_residual_networks_are_clear(kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), *(Block(kind) for _ in range(60)), nn.Linear(16, 4))
    assert found_in(recording_of(model, (torch.randn(16, 8), CLASSES))) == []


def test_a_converged_loss_is_not_a_vanished_gradient():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)
    )
    batch = (torch.randn(16, 8), CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(300):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
    assert loss < 1e-2
    assert found_in(recording_of(model, batch)) == []


@pytest.mark.nightly
def test_weights_shared_over_time_do_not_starve_but_forget():
    torch.manual_seed(0)
    recording = recording_of(Loop(0.5, every=False), (torch.rand(16, 30, 2), CLASSES))
    assert found_in(recording) == []
    (found,) = found_in(recording, ShortMemoryHorizon())
    assert found.severity == "note"
    assert found.location.source.startswith("h = torch.relu(")


def test_an_encoder_behind_a_forgetful_loop_starves():
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.rec, self.head = (
                nn.Linear(8, 24),
                nn.Linear(24, 24),
                nn.Linear(24, 4),
            )
            nn.init.orthogonal_(self.rec.weight, gain=0.5)

        def forward(self, x):
            h = self.encoder(x)
            for _ in range(30):
                h = torch.tanh(self.rec(h))
            return self.head(h)

    torch.manual_seed(0)
    (found,) = found_in(recording_of(Decoder(), (torch.randn(16, 8), CLASSES)))
    assert "encoder.weight" in found.parameters
    assert "rec.weight" not in found.parameters


@pytest.mark.nightly
def test_attention_to_an_encoder_is_no_trend():
    torch.manual_seed(0)
    layers = {"num_encoder_layers": 3, "num_decoder_layers": 3, "dim_feedforward": 32}
    model = nn.Transformer(16, 2, **layers, batch_first=True)
    batch = {"src": torch.randn(4, 10, 16), "tgt": torch.randn(4, 6, 16)}
    recording = recording_of(model, batch, lambda output, _: output.pow(2).mul(1.1).sum())
    assert found_in(recording) == []


def test_a_recording_without_backward_is_not_judged():
    recording = recording_of(*stack(0.1), steps=0)
    context = RuleContext(dataclasses.replace(recording, tensor_stats=()))
    assert VanishingGradient().skip_reason(context) == "no backward was recorded"
