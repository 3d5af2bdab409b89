"""Tests the recordings of loops of all kinds."""

from itertools import chain

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from gradscope.recording.evidence.training import TrainedOptimizer
from tests.nightly import some_on_push


def data(rows=16):
    return torch.randn(rows, 8), torch.randint(0, 4, (rows,))


def mean_loss(model, rows=16):
    x, y = data(rows)
    return cross_entropy(model(x), y)


@pytest.fixture(name="model")
def _model():
    return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))


def test_events_of_a_step_stand_in_their_order_with_their_lines(run, model):
    def loop():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            loss = mean_loss(model)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()

    made = run(loop)
    assert [step.optimizer for step in made.recording.steps] == ["SGD(lr=0.5)"] * 3
    assert made.kinds(1) == ["zero", "backward", "clip-norm", "step"]
    assert made.line(made.events("backward")[0]) == "loss.backward()"
    assert made.line(made.events("step")[0]) == "optimizer.step()"
    (optimizer,) = made.recording.evidence_of(TrainedOptimizer)
    assert (optimizer.name, optimizer.family, optimizer.parameters) == (
        "optimizer",
        "sgd",
        (0, 1, 2, 3),
    )
    assert [p.name for p in made.recording.parameters][:2] == ["model.0.weight", "model.0.bias"]
    backward = made.numbers("backward")[1]
    assert (backward["reached"], backward["stale"], backward["added"]) == (4, 0, 0)
    assert (backward["rows"], backward["reduction"], backward["divided"]) == (16, 1, 1)


def test_a_model_that_torch_calls_has_the_name_of_its_variable(run, model):
    def loop():
        network = model
        optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
        for _ in range(2):
            optimizer.zero_grad()
            weights = dict(network.named_parameters())
            functional_call(network, weights, data()[:1]).sum().backward()
            optimizer.step()

    assert run(loop).recording.parameters[0].name == "network.0.weight"


def test_norms_are_those_that_the_optimizer_sees(run, model):
    norms, changes = [], []

    def loop():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            mean_loss(model).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            before = [p.detach().double() for p in model.parameters()]
            norms.append([float(p.grad.double().norm()) for p in model.parameters()])
            optimizer.step()
            after = [p.detach().double() for p in model.parameters()]
            changes.append([float((a - b).norm()) for a, b in zip(after, before, strict=True)])

    made = run(loop)
    stats = made.recording.parameter_stats
    assert [s.gradient.norm for s in stats] == pytest.approx([*chain(*norms)], rel=1e-6)
    assert [s.update_norm for s in stats] == pytest.approx([*chain(*changes)], rel=1e-5)
    totals = [torch.tensor(one).norm().item() for one in norms]
    assert [n["norm"] for n in made.numbers("step")] == pytest.approx(totals, rel=1e-6)


def test_gradients_that_nobody_zeroes_are_stale(run, model):
    def loop():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(3):
            mean_loss(model).backward()
            optimizer.step()

    assert [n["stale"] for n in run(loop).numbers("backward")] == [0, 4, 4]


def zero_none(parameter):
    parameter.grad = None


def zero_data(parameter):
    parameter.grad.data.zero_()


@pytest.mark.parametrize("zero", some_on_push([zero_none, zero_data, lambda p: p.grad.zero_()], 3))
def test_gradients_zeroed_by_hand_are_not_stale(zero, run, model):
    def loop():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(3):
            mean_loss(model).backward()
            optimizer.step()
            for parameter in model.parameters():
                zero(parameter)

    made = run(loop)
    assert [n["stale"] for n in made.numbers("backward")] == [0, 0, 0]
    assert {event.subject for event in made.events("zero")} == {"outside"}


def test_a_gradient_that_was_zero_for_the_step_was_not_zeroed_after_it(run, model):
    last = model[-1].bias

    def loop():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            (mean_loss(model) + 0 * last.sum()).backward()
            optimizer.step()
            mean_loss(nn.Linear(8, 4)).backward()  # before which the gradients are looked at

    last.register_hook(torch.zeros_like)
    assert {event.subject for event in run(loop).events("zero")} == {"optimizer"}


def test_accumulation_is_counted_and_divided(run, model):
    def loop():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(8):
            (mean_loss(model) / 4).backward()
            if step % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()

    made = run(loop)
    assert [n["added"] for n in made.numbers("backward")] == [0, 4, 4, 4] * 2
    assert {n["divided"] for n in made.numbers("backward")} == {4}
    assert [(n["backwards"], n["fresh"]) for n in made.numbers("step")] == [(4, 4), (4, 4)]
    assert [n["unspent"] for n in made.numbers("zero")] == [0, 0]


def test_zeroing_before_the_step_takes_unspent_gradients(run, model):
    def loop():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        mean_loss(model).backward()
        optimizer.zero_grad()
        optimizer.step()

    made = run(loop)
    assert made.numbers("zero")[0]["unspent"] == 4
    assert made.numbers("step")[0]["none"] == 4


def test_perturbed_weights_have_used_the_gradient(run, model):
    # As sharpness-aware minimisation does: the first gradient moves the weights by hand.
    def loop():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        mean_loss(model).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(parameter.grad, alpha=0.05)
        optimizer.zero_grad()
        mean_loss(model).backward()
        optimizer.step()

    made = run(loop)
    assert made.numbers("zero")[0]["unspent"] == 0
    assert made.numbers("step")[-1]["fresh"] == 4


def test_adversarial_networks_have_their_own_steps(run):
    def loop():
        maker, judge = nn.Linear(4, 8), nn.Linear(8, 1)
        opt_maker = torch.optim.Adam(maker.parameters())
        opt_judge = torch.optim.Adam(judge.parameters())
        for _ in range(2):
            opt_judge.zero_grad()
            judge(maker(torch.randn(5, 4)).detach()).mean().backward()
            opt_judge.step()
            opt_maker.zero_grad()
            (-judge(maker(torch.randn(5, 4))).mean()).backward()
            opt_maker.step()

    made = run(loop)
    assert [event.optimizer for event in made.events("step")] == [1, 0, 1, 0]
    assert [n["fresh"] for n in made.numbers("step")] == [2, 2, 2, 2]
    names = [one.name for one in made.recording.evidence_of(TrainedOptimizer)]
    assert names == ["opt_maker", "opt_judge"]
    # The judge's second gradient in a round is added to one that its step has used.
    assert [n["stale"] for n in made.numbers("backward")] == [0, 2, 0, 2]


def test_one_loss_backpropagated_twice_is_observed(run, model):
    def loop():
        hidden = model[0](torch.randn(4, 8))
        one, two = hidden.mean(), hidden.square().mean()
        one.backward(retain_graph=True)
        two.backward(retain_graph=True)  # shares a part, which is fine
        (one + two).backward()

    made = run(loop)
    assert [n["again"] for n in made.numbers("backward")] == [0, 0, 1]
    assert made.recording.steps[-1].optimizer is None


def test_a_graph_that_reaches_behind_the_last_step_is_older_and_grows(run):
    def loop():
        weight = nn.Parameter(torch.zeros(3))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        history = 0
        for _ in range(3):
            history = history + (weight * torch.randn(3)).sum()
            optimizer.zero_grad()
            history.backward(retain_graph=True)
            optimizer.step()

    found = run(loop).numbers("backward")
    assert [n["older"] for n in found] == [0, 1, 1]
    assert found[0]["nodes"] < found[1]["nodes"] < found[2]["nodes"]


def test_closures_use_their_gradients(run, model):
    def loop():
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
        x, y = data()

        def closure():
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)

    made = run(loop)
    assert {n["unspent"] for n in made.numbers("zero")} == {0}
    assert {n["stale"] for n in made.numbers("backward")} == {0}
    assert [n["fresh"] for n in made.numbers("step")] == [4, 4]


def test_clips_know_what_they_clip(run, model):
    def loop():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        exhausted = (p for p in model.parameters())
        list(exhausted)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        mean_loss(model).backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        nn.utils.clip_grad_norm_(model[0].parameters(), 1.0, norm_type=1.0)
        optimizer.step()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with pytest.warns(UserWarning, match="empty generator"):
            nn.utils.clip_grad_norm_(exhausted, 1.0)

    made = run(loop)
    early, partial, late, nothing = made.numbers("clip-norm")
    assert (early["empty"], early["parameters"]) == (4, 4)
    assert made.numbers("clip-value")[0]["fresh"] == 4
    assert (partial["fresh"], partial["norm_type"], partial["max_norm"]) == (2, 1, 1)
    assert (late["fresh"], late["spent"]) == (0, 4)
    assert nothing["exhausted"] == 1
    assert made.numbers("step")[0]["clipped"] == 4


def test_scaled_gradients_are_known_until_they_are_unscaled(run, model):
    def loop():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for step in range(2):
            optimizer.zero_grad()
            factor = float("inf") if step else 1.0
            scaler.scale(mean_loss(model) * factor).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1e9)
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1e9)
            scaler.step(optimizer)
            scaler.update()

    made = run(loop)
    assert [n["scaled"] for n in made.numbers("clip-norm")] == [1, 0, 1, 0]
    assert [n["skipped"] for n in made.numbers("scaler-step")] == [0, 1]
    assert made.numbers("scaler-update")[1] == {"scale_before": 8, "scale_after": 4}
    first, second = (n["norm"] for n in made.numbers("clip-norm")[:2])
    assert first == pytest.approx(8 * second, rel=1e-5)
    assert len(made.events("step")) == 1
