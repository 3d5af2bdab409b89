"""GS101: what explodes, what only looks so, and where each is placed."""

import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from gradscope.analysis.spine import Spines
from gradscope.rules.context import RuleContext
from gradscope.rules.flow.exploding_gradient import ExplodingGradient
from gradscope.session.inspection import record
from gradscope.target.loading import target_from_objects
from gradscope.target.options import Trial
from tests.nightly import some_on_push
from tests.rules.inspecting import only

CLASSES = torch.arange(16) % 4


def recording_of(model, batch, loss=functional.cross_entropy, *, optimizer=None, steps=1):
    target = target_from_objects(model, batch, loss, optimizer=optimizer, grad_output=None)
    return record(target, trial=Trial(probe_steps=steps), eager=False, command="inspect")


def found_in(recording):
    rule = ExplodingGradient()
    context = RuleContext(recording)
    return [] if rule.skip_reason(context) else list(rule.check(context))


def stack(gain, *, depth=10, width=24, residual=False, norm=False):
    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth if norm else 0))
            self.head = nn.Linear(width, 4)
            for layer in self.layers:
                nn.init.orthogonal_(layer.weight, gain=gain)

        def forward(self, x):
            for position, layer in enumerate(self.layers):
                branch = layer(self.norms[position](x) if norm else x)
                x = x + branch if residual else branch
            return self.head(x)

    return Stack(), (torch.randn(16, width), CLASSES)


@pytest.mark.parametrize(
    ("decades", "level"),
    [
        (1.49, None),
        (1.51, "note"),
        (1.99, "note"),
        (2.01, "warning"),
        (3.99, "warning"),
        (4.01, "error"),
    ],
)
def test_levels_by_decades(decades, level):
    recording = recording_of(*stack(10 ** (decades / 9)), steps=0)
    # The same gradients after a step: what is measured is exact, and it lasts.
    later = dataclasses.replace(recording.steps[0], index=1, kind="probe")
    stats = tuple(dataclasses.replace(stat, step=1) for stat in recording.tensor_stats)
    recording = dataclasses.replace(
        recording,
        steps=(*recording.steps, later),
        tensor_stats=recording.tensor_stats + stats,
    )
    found = found_in(recording)
    assert [finding.severity for finding in found] == ([level] if level else [])
    if found:
        assert dict(found[0].evidence)["decades"] == pytest.approx(decades, abs=1e-3)


@pytest.mark.parametrize(("decades", "level"), [(3.9, "warning"), (4.1, "error")])
def test_what_every_layer_does_needs_no_later_step(decades, level):
    (found,) = found_in(recording_of(*stack(10 ** (decades / 9)), steps=0))
    assert found.severity == level
    assert dict(found.evidence)["lasts"] is False


def test_what_a_few_layers_do_is_at_most_a_warning_without_a_later_step():
    model, batch = stack(1.0)
    with torch.no_grad():
        for layer in model.layers[4:6]:
            layer.weight.mul_(1000.0)
    (found,) = found_in(recording_of(model, batch, steps=0))
    assert dict(found.evidence)["decades"] > 5
    assert found.severity == "warning"


def test_what_is_gone_after_the_probe_is_no_finding():
    recording = recording_of(*stack(3.0))
    calm = {
        stat: dataclasses.replace(stat, gradient=dataclasses.replace(stat.gradient, norm=1.0))
        for stat in recording.tensor_stats
        if stat.step == 1
    }
    stats = tuple(calm.get(stat, stat) for stat in recording.tensor_stats)
    assert found_in(recording) != []
    assert found_in(dataclasses.replace(recording, tensor_stats=stats)) == []


@pytest.mark.parametrize("norm", [False, True])
def test_residual_branches_explode_without_normalisation_only(norm):
    found = found_in(recording_of(*stack(1.0, depth=30, residual=True, norm=norm)))
    assert [finding.severity for finding in found] == ([] if norm else ["error"])


@pytest.mark.nightly
def test_a_deep_stack_of_batch_normalisations_without_shortcuts_explodes():
    layers = [m for _ in range(40) for m in (nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(32, 4))
    (found,) = found_in(recording_of(model, (torch.randn(16, 32), CLASSES)))
    assert found.severity in ("warning", "error")
    assert "residual" in found.remedy


class Loop(nn.Module):
    """A hand-written recurrent layer."""

    def __init__(self, gain, *, every):
        super().__init__()
        self.inputs, self.rec = nn.Linear(2, 24), nn.Linear(24, 24, bias=False)
        self.head = nn.Linear(24, 4)
        self.every = every
        nn.init.orthogonal_(self.rec.weight, gain=gain)

    def forward(self, x):
        h, states = x.new_zeros(len(x), 24), []
        for t in range(x.shape[1]):
            h = torch.relu(self.inputs(x[:, t]) + self.rec(h))
            states.append(h)
        return self.head(torch.stack(states, 1).mean(1) if self.every else h)


@pytest.mark.parametrize(
    "every", some_on_push([False, True], {0}), ids=["last state", "every state"]
)
@pytest.mark.parametrize(("gain", "explodes"), [(1.3, False), (2.5, True)])
def test_a_loop_over_time_is_placed_at_its_line(every, gain, explodes):
    torch.manual_seed(0)
    found = found_in(recording_of(Loop(gain, every=every), (torch.rand(16, 30, 2), CLASSES)))
    assert bool(found) is explodes
    if explodes:
        assert found[0].severity == "error"
        assert found[0].location.source.startswith("h = torch.relu(")
        assert "rec.weight" in found[0].parameters


@pytest.mark.parametrize("kind", some_on_push([nn.RNN, nn.LSTM, nn.GRU], {1}))
@pytest.mark.parametrize(("gain", "explodes"), [(1.0, False), (20.0, True)])
def test_recurrent_layers_of_torch(kind, gain, explodes):
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.memory, self.head = kind(4, 24, batch_first=True), nn.Linear(24, 4)
            with torch.no_grad():
                self.memory.weight_hh_l0.mul_(gain)

        def forward(self, x):
            return self.head(self.memory(x)[0][:, -1])

    torch.manual_seed(0)
    found = found_in(recording_of(Reader(), (torch.randn(16, 50, 4), CLASSES)))
    assert bool(found) is explodes
    if explodes:
        assert found[0].modules == ("memory",)
        assert found[0].severity in ("warning", "error")


@pytest.mark.nightly
def test_layers_that_overflow_the_forward_are_the_cause_of_a_loss_that_is_not_finite():
    model, batch = stack(30.0, depth=40)
    recording = recording_of(model, batch)
    assert not math.isfinite(recording.steps[0].loss)
    (found,) = found_in(recording)
    assert found.severity == "error"
    assert dict(found.evidence)["decades_per_layer"] == pytest.approx(math.log10(30), rel=0.02)
    assert "overflow" in found.message


def test_a_logarithm_of_zero_is_no_explosion():
    model, batch = stack(1.0)
    recording = recording_of(model, batch, lambda output, _: torch.log(output * 0).mean())
    assert found_in(recording) == []


def test_an_operation_that_multiplies_by_far_too_much_is_named():
    class Amplified(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x):
            x = torch.tanh(self.first(x) * 1e-6)
            return self.second(x * 1e7)

    torch.manual_seed(0)
    recording = recording_of(Amplified(), (torch.randn(16, 8), CLASSES))
    (found,) = found_in(recording)
    assert found.severity == "error"
    assert found.location.source == "return self.second(x * 1e7)"


def test_a_large_gradient_that_a_mask_sets_to_zero_again_is_no_explosion():
    class Graph(nn.Module):
        """Divides by the degree's root, which is floored for the node without neighbours."""

        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
            self.weight = nn.Parameter(torch.zeros(()))

        def forward(self, x, adjacency):
            weighted = adjacency * functional.softplus(self.weight)
            scale = weighted.sum(1).clamp(min=1e-6).pow(-0.5)
            operator = scale[:, None] * weighted * scale
            for layer in self.layers:
                x = x + 0.1 * layer(operator @ x)
            return x

    torch.manual_seed(3)
    adjacency = (torch.rand(16, 16) < 0.4).float()
    adjacency = (adjacency + adjacency.T).clamp(max=1)
    adjacency[5] = adjacency[:, 5] = 0
    batch = {"x": torch.randn(16, 4), "adjacency": adjacency}
    assert not found_in(
        recording_of(Graph(), batch, lambda y, _: functional.cross_entropy(y, CLASSES))
    )


def test_it_is_placed_where_the_layers_are_made(inspect_file):
    report = inspect_file(
        "import torch\n"
        "from torch import nn\n"
        "layers = [nn.Linear(16, 16) for _ in range(12)]\n"
        "for layer in layers:\n"
        "    layer.weight.data.normal_()\n"
        "model = nn.Sequential(*layers, nn.Linear(16, 4))\n"
        "batch = (torch.randn(8, 16), torch.arange(8) % 4)\n"
        "loss_fn = nn.CrossEntropyLoss()\n"
    )
    found = only(report.findings, "GS101")
    assert found.location.line == 6


@pytest.mark.parametrize("target", ["layer.weight", "layer.weight.data"])
def test_it_is_placed_where_the_weights_are_initialised(inspect_file, target):
    report = inspect_file(
        "import torch\n"
        "from torch import nn\n"
        "layers = [nn.Linear(16, 16) for _ in range(12)]\n"
        "model = nn.Sequential(*layers, nn.Linear(16, 4))\n"
        "for layer in model:\n"
        f"    nn.init.normal_({target})\n"
        "batch = (torch.randn(8, 16), torch.arange(8) % 4)\n"
        "loss_fn = nn.CrossEntropyLoss()\n"
    )
    found = only(report.findings, "GS101")
    assert found.location.line == 6
    assert [position.line for position in found.related] == [4]


def test_the_profile_ignores_the_scale_of_the_loss():
    for scale in (1e-8, 1.0, 1e8):
        torch.manual_seed(0)
        model, batch = stack(1.0)
        recording = recording_of(
            model, batch, lambda o, t, s=scale: s * functional.cross_entropy(o, t)
        )
        assert found_in(recording) == []
        assert abs(Spines(RuleContext(recording)).first.growth.decades) < 0.01
