"""Values and names that captures record of a script's forwards."""

import gc
import math
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.functional import cross_entropy, mse_loss

from gradscope.recording.evidence.failures import NonfiniteRecord
from gradscope.recording.evidence.forward import SaturationRecord, UnitRecord
from tests.nightly import some_on_push
from tests.step_capture.conftest import norms
from tests.step_capture.models_to_train import features, mlp


def train(model, loss_of, steps=2):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()


def origins(recorded, position=0):
    """Return the operations that the NaN and infinities come from, with their lines."""
    recording = recorded.captured_steps[position].recording
    return [
        (one.operation, one.makes, one.source, recording.sites[one.site].source)
        for one in recording.evidence_of(NonfiniteRecord)
        if one.site is not None
    ]


@pytest.mark.parametrize(
    "activation",
    some_on_push(
        [
            nn.ReLU(),
            nn.ReLU(inplace=True),
            functional.relu,
            torch.relu,
            torch.relu_,
            torch.Tensor.relu,
            lambda x: x.clamp(min=0),
        ],
        3,
    ),
    ids=["module", "in place", "functional", "torch", "torch in place", "method", "clamp"],
)
def test_units_that_are_never_active(activation, capture_steps):
    def loop():
        torch.manual_seed(0)
        first, second = nn.Linear(8, 16), nn.Linear(16, 4)
        with torch.no_grad():
            first.bias[:5] = -1e3
        model = nn.ModuleList([first, second])
        train(model, lambda _: second(activation(first(torch.randn(64, 8)))).square().mean())

    for one in capture_steps(loop).captured_steps:
        (units,) = one.recording.evidence_of(UnitRecord)
        assert (units.units, units.inactive, units.samples) == (16, 5, 64)
        names = {one.recording.parameters[position].name for position in units.parameters}
        assert {name.rpartition(".")[2] for name in names} == {"weight", "bias"}


@pytest.mark.parametrize(
    ("activation", "operation"),
    some_on_push(
        [
            (nn.Sigmoid(), "sigmoid"),
            (torch.sigmoid, "sigmoid"),
            (torch.tanh, "tanh"),
            (nn.Softmax(dim=-1), "softmax"),
            (lambda x: functional.softmax(x, -1), "softmax"),
            (lambda x: x.softmax(1), "softmax"),
        ],
        2,
    ),
    ids=["sigmoid", "torch.sigmoid", "tanh", "Softmax", "softmax", "method"],
)
def test_activations_at_the_ends_of_their_range(activation, operation, capture_steps):
    def loop():
        model = nn.Linear(8, 4)
        train(
            model,
            lambda model: mse_loss(activation(1e4 * model(torch.randn(64, 8))), torch.zeros(64, 4)),
        )

    for one in capture_steps(loop).captured_steps:
        (saturation,) = one.recording.evidence_of(SaturationRecord)
        assert saturation.operation == operation
        assert saturation.saturated >= 0.98 * saturation.elements > 0


def test_healthy_activations_are_seen_too(capture_steps):
    def loop():
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), nn.Sigmoid())
        train(model, lambda model: mse_loss(model(torch.randn(64, 8)), torch.zeros(64, 4)))

    for one in capture_steps(loop).captured_steps:
        (units,) = one.recording.evidence_of(UnitRecord)
        (saturation,) = one.recording.evidence_of(SaturationRecord)
        assert units.inactive == 0
        assert saturation.saturated < saturation.elements / 4


def log_of_zero(model):
    output = model(torch.randn(4, 8)).relu()
    worst = torch.log(output * 0)
    return worst.mean()


def zero_by_zero(model):
    output = model(torch.randn(4, 8)) * 0
    ratio = output / output
    return ratio.mean()


def written(model):
    output = model(torch.randn(4, 8)) * 1.0
    output[0] = float("nan")
    return output.mean()


def masked(model):
    scores = model(torch.randn(4, 8))
    scores = scores.masked_fill(torch.ones(4, 4, dtype=torch.bool), -math.inf)
    weights = scores.softmax(-1)
    return weights.mean()


def masked_between_layers(model):
    scores = model(torch.randn(4, 3, 8))  # a layer's result for sequences is a view
    weights = scores.masked_fill(torch.ones(3, 4, dtype=torch.bool), -math.inf).softmax(-1)
    turned = weights.transpose(0, 1).contiguous()
    return functional.linear(turned.double().to(torch.float32), model.weight.T).mean()


@pytest.mark.parametrize(
    ("loss_of", "expected"),
    some_on_push(
        [
            (log_of_zero, ("log", "infinity", "operation", "worst = torch.log(output * 0)")),
            (zero_by_zero, ("div", "NaN", "operation", "ratio = output / output")),
            (masked, ("softmax", "NaN", "operation", "weights = scores.softmax(-1)")),
            (
                masked_between_layers,
                (
                    "softmax",
                    "NaN",
                    "operation",
                    "weights = scores.masked_fill(torch.ones(3, 4, dtype=torch.bool), -math.inf)"
                    ".softmax(-1)",
                ),
            ),
        ],
        {0, 1, 3},
    ),
    ids=lambda one: getattr(one, "__name__", None),
)
def test_where_a_forward_stops_being_finite(loss_of, expected, capture_steps):
    recorded = capture_steps(lambda: train(nn.Linear(8, 4), loss_of))
    found = origins(recorded)
    assert expected in [(name.lstrip("_"), *rest) for name, *rest in found]
    assert "tensor" not in [source for _, _, source, _ in found]
    assert not math.isfinite(recorded.captured_steps[0].recording.steps[0].loss)


def test_a_nan_that_is_written_in(capture_steps):
    found = origins(capture_steps(lambda: train(nn.Linear(8, 4), written)))
    assert found == [("fill_", "NaN", "constant", 'output[0] = float("nan")')]


@pytest.mark.nightly
def test_a_backward_that_stops_being_finite_by_itself(capture_steps):
    def loss_of(model):
        output = model(torch.zeros(4, 8))
        return (output - output).square().sum(1).sqrt().mean()

    recorded = capture_steps(lambda: train(nn.Linear(8, 4, bias=False), loss_of, 1))
    assert origins(recorded) == []
    recording = recorded.captured_steps[0].recording
    broken = [stat for stat in recording.tensor_stats if stat.gradient and stat.gradient.nonfinite]
    first = min(broken, key=lambda stat: stat.order)
    assert recording.steps[0].loss == 0
    assert recording.nodes[first.node].operation in ("SumBackward1", "PowBackward0")


@pytest.mark.nightly
def test_names_are_those_of_the_run(capture_steps):
    def loop():
        generator, critic = mlp(0.0), nn.Linear(4, 1)
        scale = nn.Parameter(torch.ones(()))
        optimizer = torch.optim.SGD([*generator.parameters(), *critic.parameters(), scale], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            (scale * critic(generator(features()[0]))).mean().backward()
            optimizer.step()

    recorded = capture_steps(loop)
    wanted = {parameter.name for parameter in recorded.recording.parameters}
    assert len(wanted) == 7
    for one in recorded.captured_steps:
        assert set(norms(one)) == wanted
    paths = {module.path for module in recorded.recording.modules}
    assert {module.path for module in recorded.captured_steps[-1].recording.modules} - {""} <= paths


@pytest.mark.nightly
def test_a_model_that_only_its_optimizer_has_shown(capture_steps):
    def made():
        model = mlp(0.0)
        return model.forward, torch.optim.SGD(model.parameters(), lr=0.1)

    def loop():
        predict, optimizer = made()
        for _ in range(3):
            x, y = features()
            optimizer.zero_grad()
            cross_entropy(predict(x), y).backward()
            optimizer.step()

    recorded = capture_steps(loop)
    assert len(recorded.captured_steps) == 3
    wanted = {parameter.name for parameter in recorded.recording.parameters}
    assert all(set(norms(one)) == wanted for one in recorded.captured_steps)


@pytest.mark.nightly
def test_models_of_earlier_folds_are_released(capture_steps):
    alive = []

    def loop():
        for fold in range(5):
            model = mlp()
            alive.append(weakref.ref(model))
            train(model, lambda model: cross_entropy(model(features()[0]), features()[1]), 2)
            del model
            gc.collect()
            # The window that is open holds the last one, and no other.
            assert sum(one() is not None for one in alive) <= 1, fold

    recorded = capture_steps(loop)
    assert len(recorded.captured_steps) == 10
    assert {len(norms(one)) for one in recorded.captured_steps} <= {4, 8}
