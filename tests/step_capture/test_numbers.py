"""Gradients of a captured step equal torch's own."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.nightly import some_on_push
from tests.step_capture.conftest import norms, reaches
from tests.step_capture.models_to_train import Encoder, Recurrent, convolutional, mlp

BATCHES = {
    "mlp": (lambda: mlp(0.0), (16, 8)),
    "convolutional": (convolutional, (4, 3, 8, 8)),
    "lstm": (lambda: Recurrent().eval(), (4, 5, 8)),
    "transformer": (lambda: Encoder(training=False), (4, 5, 8)),
}
ADAPTIVE = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, foreach=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "fused adam": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
}


def batches(shape, number=3):
    torch.manual_seed(1)
    return [(torch.randn(shape), torch.randint(0, 4, shape[:1])) for _ in range(number)]


def in_float64(model, x, y):
    """Return the norms of the parameters' gradients, by name."""
    double = copy.deepcopy(model).double()
    loss = cross_entropy(double(x.double()), y)
    names, parameters = zip(*double.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return {
        f"model.{name}": None if one is None else one.norm().item()
        for name, one in zip(names, found, strict=True)
    }


def of_model(one):
    """Return the norms of the parameters of the model that is trained."""
    return {name: norm for name, norm in norms(one).items() if name.startswith("model.")}


@pytest.mark.parametrize(
    ("name", "optimizer"),
    some_on_push([*((name, "sgd") for name in BATCHES), *(("mlp", name) for name in ADAPTIVE)], 6),
)
def test_gradients_of_parameters(name, optimizer, capture_steps):
    make, shape = BATCHES[name]
    make_optimizer = ADAPTIVE.get(optimizer, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    expected, losses = [], []

    def loop():
        model = make()
        optimizer = make_optimizer(model.parameters())
        for x, y in batches(shape):
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            expected.append(in_float64(model, x, y))
            losses.append(loss.item())
            loss.backward()
            optimizer.step()

    made = capture_steps(loop)
    assert made.steps == [0, 1, 2]
    for one, wanted, loss in zip(made.captured_steps, expected, losses, strict=True):
        assert of_model(one) == pytest.approx(wanted, rel=1e-3, abs=1e-6)
        assert one.recording.steps[0].loss == pytest.approx(loss)


def test_gradients_of_every_tensor(capture_steps):
    kept = []

    def loop():
        first, second = nn.Linear(8, 16), nn.Linear(16, 4)
        optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
        for x, y in batches((16, 8)):
            a = first(x)
            b = a.relu()
            c = b * torch.sigmoid(a)
            d = c.view(4, 4, 16).transpose(0, 1).flatten(0, 1) + 1
            loss = cross_entropy(second(d), y)
            for tensor in (a, b, c, d, loss):
                tensor.retain_grad()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            kept.append({one.grad_fn._sequence_nr(): one.grad.norm().item() for one in (a, b, c)})
            kept[-1][loss.grad_fn._sequence_nr()] = 1.0

    made = capture_steps(loop)
    for one, wanted in zip(made.captured_steps, kept, strict=True):
        nodes = one.recording.nodes
        measured = {
            nodes[stat.node].sequence: stat.gradient.norm
            for stat in one.recording.tensor_stats
            if stat.gradient is not None
        }
        assert {number: measured[number] for number in wanted} == pytest.approx(wanted)


def test_a_second_backward_shows_what_it_has_added(capture_steps):
    expected = []

    def loop():
        model = mlp(0.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            (x, y), (other_x, other_y) = batches((16, 8), 2)
            optimizer.zero_grad()
            expected.append(in_float64(model, x, y))
            cross_entropy(model(x), y).backward()
            expected.append(in_float64(model, other_x, other_y))
            cross_entropy(model(other_x), other_y).backward()
            optimizer.step()

    made = capture_steps(loop)
    assert made.steps == [0, 0, 1, 1]
    for one, wanted in zip(made.captured_steps, expected, strict=True):
        assert of_model(one) == pytest.approx(wanted, rel=1e-3)


@pytest.mark.nightly
def test_one_line_is_captured_once_a_window(capture_steps):
    expected = []

    def loop():
        model = mlp(0.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            for position, (x, y) in enumerate(batches((16, 8))):
                if not position:
                    expected.append(in_float64(model, x, y))
                cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

    made = capture_steps(loop)
    assert made.steps == [0, 1]
    for one, wanted in zip(made.captured_steps, expected, strict=True):
        assert of_model(one) == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("unscales", some_on_push([False, True], 2))
def test_gradients_are_reported_without_the_scale_of_a_scaler(unscales, capture_steps):
    expected, losses = [], []

    def loop():
        model = mlp(0.0)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
        for x, y in batches((16, 8)):
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            expected.append(in_float64(model, x, y))
            losses.append(loss.item())
            scaler.scale(loss).backward()
            if unscales:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()

    made = capture_steps(loop)
    for one, wanted, loss in zip(made.captured_steps, expected, losses, strict=True):
        assert of_model(one) == pytest.approx(wanted, rel=1e-3)
        assert one.recording.steps[0].loss == pytest.approx(loss)


@pytest.mark.nightly
def test_a_step_that_a_scaler_leaves_out_is_followed_by_another_capture(capture_steps):
    def loop():
        model = mlp(0.0)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
        for position, (x, y) in enumerate(batches((16, 8), 6)):
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y) * (math.inf if position < 2 else 1)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    made = capture_steps(loop)
    assert made.steps == [0, 0, 0, 1, 2, 3]
    assert [one.order for one in made.captured_steps[:3]] == sorted(
        {one.order for one in made.captured_steps[:3]}
    )
    finite = [all(map(math.isfinite, norms(one).values())) for one in made.captured_steps]
    assert finite == [False, False, True, True, True, True]


def test_none_zero_and_frozen_are_three_values(capture_steps):
    def loop():
        model = nn.ModuleDict({name: nn.Linear(8, 4, bias=False) for name in "abcd"})
        model["c"].requires_grad_(False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in batches((16, 8)):
            optimizer.zero_grad()
            output = model["a"](x) + 0 * model["b"](x) + model["c"](x)
            cross_entropy(output, y).backward()
            optimizer.step()

    for one in capture_steps(loop).captured_steps:
        assert reaches(one) == {
            "model.a.weight": "gradient",
            "model.b.weight": "zero",
            "model.c.weight": "frozen",
            "model.d.weight": "none",
        }
