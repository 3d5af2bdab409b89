import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from gradscope.capture.training.steps.measurements import GradientStorage

EXACT = GradientStorage(mode="exact", every=3)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(20, 8, sparse=False), nn.Flatten(), nn.Linear(32, 5))


def train(steps, seen, *, change=lambda net: None):
    """Train for some steps, and note the gradients that each step of the optimizer was given."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        x = torch.arange(8).view(2, 4) + step
        cross_entropy(net(x % 20), torch.tensor([1, 3])).backward()
        change(net)
        seen.append([p.grad.clone() for p in net.parameters()])
        optimizer.step()
    return net


def numbers(record):
    return [x for values in record.values() for x in values]


def by_step(recording):
    found = {}
    for one in recording.stored_gradients:
        found.setdefault(one.step, []).append(one)
    return found


def test_every_third_steps_gradients_are_those_the_optimizer_was_given(run):
    seen = []
    recording = run(lambda: train(8, seen), gradient_storage=EXACT).recording
    kept = by_step(recording)
    assert list(kept) == [0, 3, 6]
    for step, records in kept.items():
        assert [one.parameter for one in records] == [0, 1, 2]
        for record, gradient in zip(records, seen[step], strict=True):
            assert numbers(record) == gradient.flatten().tolist()
            assert record.shape == recording.parameters[record.parameter].shape.dims


def test_clipping_comes_before(run):
    seen = []
    clip = lambda net: nn.utils.clip_grad_norm_(net.parameters(), 1e-3)  # noqa: E731
    recording = run(lambda: train(1, seen, change=clip), gradient_storage=EXACT).recording
    total = sum(x * x for one in recording.stored_gradients for x in numbers(one)) ** 0.5
    assert total == pytest.approx(1e-3, rel=1e-3)


def test_nothing_is_kept_unless_it_is_asked_for(run):
    assert run(lambda: train(2, [])).recording.stored_gradients == ()


def test_keeping_does_not_depend_on_what_is_measured(run):
    recording = run(lambda: train(8, []), gradient_storage=EXACT, every=5).recording
    assert list(by_step(recording)) == [0, 3, 6]


def test_optimizers_that_take_turns_are_counted_apart(run):
    def loop():
        nets = [nn.Linear(3, 1), nn.Linear(3, 1)]
        optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
        for _ in range(5):
            for net, optimizer in zip(nets, optimizers, strict=True):
                optimizer.zero_grad()
                net(torch.ones(2, 3)).sum().backward()
                optimizer.step()

    recording = run(loop, gradient_storage=GradientStorage(mode="exact", every=4)).recording
    assert list(by_step(recording)) == [0, 1, 8, 9]


def test_parameters_without_a_gradient_are_left_out(run):
    def loop():
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net[1](torch.ones(2, 3)).sum().backward()
        optimizer.step()

    assert [
        one.parameter for one in run(loop, gradient_storage=EXACT).recording.stored_gradients
    ] == [2, 3]


@pytest.mark.parametrize(
    "make",
    [
        lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        # It is given scaled gradients, and divides them itself.
        lambda parameters: torch.optim.Adam(parameters, lr=0.1, fused=True),
    ],
    ids=["SGD", "fused Adam"],
)
def test_an_unscaled_gradient_is_kept_where_a_scaler_scales(make, run):
    seen = []

    def loop():
        torch.manual_seed(0)
        net = nn.Linear(4, 2)
        optimizer = make(net.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        loss = net(torch.ones(3, 4)).square().mean()
        seen.extend(torch.autograd.grad(loss, list(net.parameters()), retain_graph=True))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    kept = run(loop, gradient_storage=EXACT).recording.stored_gradients
    assert [numbers(one) for one in kept] == [one.flatten().tolist() for one in seen]


def test_a_closures_last_gradients_are_stored(run):
    seen = []

    def loop():
        net = nn.Linear(4, 1)
        optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)

        def closure():
            optimizer.zero_grad()
            loss = (net(torch.ones(3, 4)) - 1).square().mean()
            loss.backward()
            seen[:] = [p.grad.clone() for p in net.parameters()]
            return loss

        optimizer.step(closure)

    kept = run(loop, gradient_storage=EXACT).recording.stored_gradients
    assert [numbers(one) for one in kept] == [one.flatten().tolist() for one in seen]


def test_sparse_gradients_stay_sparse(run):
    def loop():
        net = nn.Embedding(1_000, 8, sparse=True)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net(torch.tensor([3, 5, 3])).sum().backward()
        optimizer.step()

    (one,) = run(loop, gradient_storage=EXACT).recording.stored_gradients
    assert one.form == "sparse" and len(one.parts[0].values) == 2 * 8 * 4
    assert numbers(one)[24:32] == [2.0] * 8 and sum(numbers(one)) == 24.0
    (one,) = run(loop, gradient_storage=GradientStorage(mode="sketch")).recording.stored_gradients
    assert one.form == "sketch" and len(one.parts[0].values) == 4_096 * 4


@pytest.mark.parametrize("mode", ["exact", "sketch"])
def test_the_training_is_the_same_to_the_last_bit(run, mode):
    ends = []

    def loop():
        ends.append((train(5, []), torch.get_rng_state()))

    loop()
    run(loop, gradient_storage=GradientStorage(mode=mode, every=1))
    (plain, state), (watched, watched_state) = ends
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(state, watched_state)


def test_no_gradient_outlives_its_step(run):
    alive = []

    def loop():
        net = nn.Linear(200, 200)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            net(torch.ones(2, 200)).sum().backward()
            alive.append(weakref.ref(net.weight.grad))
            optimizer.step()
            optimizer.zero_grad()
            gc.collect()
            assert alive[-1]() is None

    run(loop, gradient_storage=GradientStorage(mode="sketch", every=1))
    assert len(alive) == 3


def test_steps_by_hand_are_reported_to_have_none(run):
    def loop():
        weight = torch.zeros(3, requires_grad=True)
        for _ in range(3):
            (weight - 1).square().sum().backward()
            with torch.no_grad():
                weight -= 0.1 * weight.grad
            weight.grad = None

    recording = run(loop, gradient_storage=EXACT).recording
    assert len(recording.steps) == 3 and recording.stored_gradients == ()
    (skipped,) = [one for one in recording.skipped if "gradients" in one.what]
    assert skipped.what == "the elements of gradients of steps by hand"
    assert not [one for one in run(loop).recording.skipped if "gradients" in one.what]
