"""Repeated steps are recorded as if they had been recorded in full."""

import itertools
import math
import os
import sys
from contextlib import suppress

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from gradscope.capture.training.pacing import budget, pace
from gradscope.recording.events import event_of
from gradscope.recording.evidence.training import WatchCost
from gradscope.recording.repetitions import is_repeated, is_shared
from tests.nightly import some_on_push

FIRST = 6
STEPS = 40
NOTHING = 1e-12
"""A budget that pays for nothing: what need not be recorded in full is compared alone."""


@pytest.fixture(autouse=True)
def _few_first(monkeypatch):
    monkeypatch.setattr(pace, "FIRST", FIRST)


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    return model, torch.randn(16, 4), torch.randn(16, 1)


def plain():
    model, x, y = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def accumulating():
    model, x, y = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for index in range(3 * STEPS):
        (nn.functional.mse_loss(model(x), y) / 3).backward()
        if index % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()


def clipping_and_scheduling():
    model, x, y = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()


def clipping_values():
    model, x, y = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        model.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()


def in_epochs():
    model, x, y = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(x[:10], y[:10])
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    for _ in range(STEPS // 3):
        for a, b in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(a), b).backward()
            optimizer.step()


def by_turns():
    model, x, y = network()
    other = nn.Linear(1, 1)
    one = torch.optim.SGD(model.parameters(), lr=0.1)
    two = torch.optim.Adam(other.parameters(), lr=0.1)
    for index in range(STEPS):
        two.zero_grad()
        nn.functional.mse_loss(other(model(x).detach()), y).backward()
        two.step()
        if index % 3 == 0:
            one.zero_grad()
            nn.functional.mse_loss(other(model(x)), y).backward()
            one.step()


def scaled():
    model, x, y = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for _ in range(STEPS):
        optimizer.zero_grad()
        scaler.scale(nn.functional.mse_loss(model(x), y)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        scaler.step(optimizer)
        scaler.update()


def scaled_with_overflows():
    model, x, y = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=7)
    for index in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        if index in (17, 23):
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def zeroed_by_hand():
    model, x, y = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        for parameter in model.parameters():
            parameter.grad = None
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def never_zeroed():
    model, x, y = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for _ in range(STEPS):
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def forgetful_once():
    model, x, y = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for index in range(STEPS):
        if index != 25:
            optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def extra_backward_once():
    model, x, y = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for index in range(STEPS):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        if index == 21:
            nn.functional.l1_loss(model(x), y).backward()
        optimizer.step()


def with_closure():
    model, x, y = network()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(12):
        optimizer.step(closure)


def penalised():
    model, x, y = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        inputs = x.clone().requires_grad_()
        output = model(inputs)
        (gradient,) = torch.autograd.grad(output.sum(), inputs, create_graph=True)
        (nn.functional.mse_loss(output, y) + gradient.square().mean()).backward()
        optimizer.step()


def differentiating_again_and_again():
    """Gradients of one kind are taken several times in a row, more often in some steps."""
    model, x, y = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for index in range(STEPS):
        inputs = x.clone().requires_grad_()
        output = model(inputs)
        for row in range(2 + index % 5):
            torch.autograd.grad(output[row].sum(), inputs, retain_graph=True)
        torch.autograd.gradcheck(torch.sin, (torch.randn(2, dtype=torch.double).requires_grad_(),))
        optimizer.zero_grad()
        nn.functional.mse_loss(output, y).backward()
        optimizer.step()


def by_hand():
    torch.manual_seed(0)
    weight, x = torch.randn(4, requires_grad=True), torch.randn(16, 4)
    for _ in range(STEPS):
        (x @ weight).square().mean().backward()
        with torch.no_grad():
            weight -= 0.01 * weight.grad
            weight.grad = None


def by_hand_through_data():
    torch.manual_seed(0)
    weight, x = torch.randn(4, requires_grad=True), torch.randn(16, 4)
    for _ in range(STEPS):
        (x @ weight).square().mean().backward()
        weight.data -= 0.01 * weight.grad
        weight.grad.zero_()


def in_backward():
    model, x, y = network()
    optimizers = {one: torch.optim.SGD([one], lr=0.1) for one in model.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(STEPS):
        nn.functional.mse_loss(model(x), y).backward()


def within_another():
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner
            super().__init__(inner.param_groups, {})

        def step(self):
            self.inner.step()

    model, x, y = network()
    optimizer = Wrapper(torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


LOOPS = (
    plain,
    accumulating,
    clipping_and_scheduling,
    clipping_values,
    in_epochs,
    by_turns,
    scaled,
    scaled_with_overflows,
    zeroed_by_hand,
    never_zeroed,
    forgetful_once,
    extra_backward_once,
    with_closure,
    penalised,
    differentiating_again_and_again,
    by_hand,
    by_hand_through_data,
    in_backward,
    within_another,
)
IN_FULL = (with_closure,)
"""Loops whose steps are never compared alone."""


def shared(event):
    numbers = {name: value for name, value in event.numbers if is_shared(event.kind, name)}
    # Where nothing is ever zeroed, each step's gradients are made of more passes.
    numbers.pop("backwards", None)
    # Stands for the rows of a batch at which nobody has looked.
    numbers.pop("forward", None)
    subject = (event.kind, event.order, event.site, event.optimizer, event.subject)
    return event.step, *subject, numbers


@pytest.mark.parametrize("loop", some_on_push(LOOPS, 6), ids=lambda loop: loop.__name__)
def test_repeated_steps_have_the_events_losses_and_rates_of_a_full_recording(run, loop):
    full, brief = run(loop), run(loop, budget=NOTHING)
    (cost,) = brief.recording.evidence_of(WatchCost)

    assert (cost.repeated > 0) == (loop not in IN_FULL)
    expected = [shared(event) for event in full.recording.events if is_repeated(event.kind)]
    # What comes along with other events may leave gaps in their order.
    found = [shared(event) for event in brief.recording.events if is_repeated(event.kind)]
    assert [one[0:2] + one[3:] for one in found] == [one[0:2] + one[3:] for one in expected]
    assert [step.index for step in brief.recording.steps] == [
        step.index for step in full.recording.steps
    ]

    def losses(one):
        return [step.loss for step in one.recording.steps]

    def rates(one):
        return [numbers.get("lr") for numbers in one.numbers("step")]

    assert losses(brief) == pytest.approx(losses(full), nan_ok=True)
    assert rates(brief) == rates(full)


def test_norms_are_measured_in_first_steps_and_not_beyond_the_budget(run):
    found = run(plain, budget=NOTHING)
    assert {stat.step for stat in found.recording.parameter_stats} == set(range(FIRST))
    assert ["norm" in numbers for numbers in found.numbers("step")] == [
        index < FIRST for index in range(STEPS)
    ]


def in_turn():
    model, x, y = network()
    other = nn.Linear(1, 1)
    one = torch.optim.SGD(model.parameters(), lr=0.1)
    two = torch.optim.Adam(other.parameters(), lr=0.1)
    for index in range(STEPS):
        optimizer, output = (one, model(x)) if index % 2 else (two, other(model(x).detach()))
        optimizer.zero_grad()
        nn.functional.mse_loss(output, y).backward()
        optimizer.step()


def test_each_of_two_optimizers_that_step_in_turn_is_measured_to_the_end(run, monkeypatch):
    asked = itertools.count()
    monkeypatch.setattr(budget, "_MOST_TOGETHER", 1)
    monkeypatch.setattr(budget.Budget, "affords_norms", lambda _: next(asked) % 8 == 7)
    stats = run(in_turn, budget=NOTHING).recording.parameter_stats
    late = {(stat.parameter < 4, stat.step % 2) for stat in stats if stat.step >= STEPS // 2}
    assert late == {(True, 1), (False, 0)}


def diverging():
    model, x, y = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for index in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        (loss / 0 if index >= STEPS - 4 else loss).backward()
        optimizer.step()


def diverging_by_hand():
    torch.manual_seed(0)
    weight, x = torch.randn(4, requires_grad=True), torch.randn(16, 4)
    for index in range(STEPS):
        loss = (x @ weight).square().mean()
        (loss / 0 if index >= STEPS - 4 else loss).backward()
        with torch.no_grad():
            weight -= 0.01 * weight.grad
            weight.grad = None


@pytest.mark.parametrize(("loop", "is_there"), [(diverging, True), (diverging_by_hand, False)])
def test_steps_from_the_first_infinite_loss_on_have_a_forward_as_those_before(run, loop, is_there):
    found = run(loop, budget=NOTHING)
    events = [event_of(one) for one in found.recording.events if one.kind == "backward"]
    assert [event.has_forward for event in events] == [is_there] * STEPS


def test_without_a_budget_every_step_is_measured(run):
    found = run(plain)
    assert {stat.step for stat in found.recording.parameter_stats} == set(range(STEPS))


def test_a_large_budget_measures_every_step(run):
    found = run(plain, budget=1e6)
    assert {stat.step for stat in found.recording.parameter_stats} == set(range(STEPS))


def test_every_nth_step_is_measured_where_that_is_asked_for(run):
    found = run(plain, budget=NOTHING, every=10)
    assert {stat.step for stat in found.recording.parameter_stats} == {0, 10, 20, 30}


def test_a_step_whose_loss_is_not_finite_is_measured(run):
    def loop():
        model, x, y = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for index in range(STEPS):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            (loss * math.nan if index == 20 else loss).backward()
            optimizer.step()

    found = run(loop, budget=NOTHING)
    assert 20 in {stat.step for stat in found.recording.parameter_stats}
    assert math.isnan(found.recording.steps[20].loss)


def test_a_step_whose_gradients_alone_are_not_finite_is_measured(run):
    class Breaks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            return value.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * math.inf

    def loop():
        model, x, y = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for index in range(25):
            optimizer.zero_grad()
            output = model(x)
            if index == 20:
                output = Breaks.apply(output)
            nn.functional.mse_loss(output, y).backward()
            optimizer.step()

    found = run(loop, budget=NOTHING)
    stats = [stat for stat in found.recording.parameter_stats if stat.step == 20]
    assert stats and not all(math.isfinite(stat.gradient.norm) for stat in stats)


def test_weights_are_the_same_to_the_bit(run):
    weights = []

    def loop():
        model, x, y = network()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for _ in range(STEPS):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        weights.append(list(model.parameters()))

    loop()
    run(loop, budget=NOTHING)
    assert all(map(torch.equal, *weights))


def test_an_exception_in_a_repeated_step_passes_and_is_recorded(run):
    def loop():
        model, x, y = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        kept = None
        for index in range(30):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            kept = kept if index > 20 else loss
            kept.backward()
            optimizer.step()

    def caught():
        with pytest.raises(RuntimeError, match="second time"):
            loop()

    found = run(caught, budget=NOTHING)
    (error,) = found.events("backward-error")
    assert dict(error.numbers)["freed"] == 1


@pytest.mark.parametrize("budget", some_on_push([None, NOTHING], 2))
def test_calls_of_autograd_grad_in_a_row_are_one_event(run, budget):
    found = run(differentiating_again_and_again, budget=budget)
    assert len(found.events("grad")) == 2 * STEPS


def test_an_exception_that_the_script_catches_is_recorded_for_no_other_step(run):
    def loop():
        model, x, y = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for index in range(30):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            if index == 15:
                with suppress(RuntimeError):
                    loss.backward()
            optimizer.step()

    found = run(loop, budget=NOTHING)
    (error,) = found.events("backward-error")
    assert error.step == 15
    assert found.recording.evidence_of(WatchCost)[0].repeated > 15


@pytest.mark.parametrize("budget", some_on_push([None, NOTHING], 2))
def test_one_of_many_calls_of_autograd_grad_that_raises_is_recorded(run, budget):
    def loop():
        model, x, y = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for index in range(30):
            inputs = x.clone().requires_grad_()
            output = model(inputs)
            for again in range(4):
                is_last = index == 25 and again >= 2
                with suppress(RuntimeError):
                    torch.autograd.grad(output.sum(), inputs, retain_graph=not is_last)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()

    found = run(loop, budget=budget)
    (error,) = found.events("grad-error")
    assert error.step == 25
    assert len(found.events("step")) == 30


def test_steps_of_a_forked_process_are_not_counted(run):
    counted, children = [], []

    def loop():
        model, x, y = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for index in range(STEPS):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            if index == 20 and not (child := os.fork()):
                before = len(counted)
                optimizer.step()
                os._exit(len(counted) - before)
            if index == 20:
                children.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            optimizer.step()

    found = run(loop, budget=NOTHING, on_step=counted.append)
    assert children == [0]
    assert len(found.recording.steps) == len(counted) == STEPS


def test_gradients_whose_memory_is_freed_are_left_alone(run):
    def loop():
        model, x, y = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for index in range(STEPS):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            if index == 20:
                for parameter in model.parameters():
                    parameter.grad.untyped_storage().resize_(0)
                optimizer.param_groups[0]["params"], held = [], optimizer.param_groups[0]["params"]
                optimizer.step()
                optimizer.param_groups[0]["params"] = held
            else:
                optimizer.step()

    assert len(run(loop, budget=NOTHING).recording.steps) == STEPS


def test_modes_of_the_scripts_own_see_nothing_of_repeated_steps(run):
    class Counting(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Counting.calls += 1
            return func(*args, **(kwargs or {}))

    def loop():
        Counting.calls = 0
        with Counting():
            plain()

    loop()
    alone = Counting.calls
    run(loop, budget=NOTHING)
    assert Counting.calls == alone


_MOST_FUNCTIONS = 40
"""Functions of gradscope that a repeated step of one zero, backward and step may call. Each takes
about a microsecond, as the step before has emptied the processor's caches."""


def test_a_repeated_step_calls_few_functions(run, monkeypatch):
    monkeypatch.setattr(budget, "_TOGETHER", 10.0)  # no decision within the steps that are counted
    called = []

    def note(frame, event, _):
        if event == "call" and "gradscope/" in frame.f_code.co_filename:
            called.append(frame.f_code.co_qualname)

    def loop():
        model, x, y = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for index in range(STEPS + 10):
            if index == STEPS:
                sys.setprofile(note)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        sys.setprofile(None)

    run(loop, budget=NOTHING)
    assert 10 < len(called) / 10 < _MOST_FUNCTIONS
