"""Steps of several optimizers that are one step of the script."""

import sys
import threading
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW, Optimizer

from gradscope.analysis.loop_windows import windows
from gradscope.analysis.run_optimizers import Optimizers
from gradscope.capture.training.watch import TrainingWatch
from gradscope.recording.evidence.training import TrainedOptimizer
from gradscope.recording.store import load_recording
from gradscope.rules.engine import judge
from gradscope.step_capture.schedule import FIRST, Schedule
from gradscope.step_capture.script_captures import script_captures_by
from tests.nightly import some_on_push

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch itself uses what it deprecates
    from torch.distributed.optim import ZeroRedundancyOptimizer

STEPS = 12


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def loss_of(model):
    dtype = next(model.parameters()).dtype
    return cross_entropy(model(torch.randn(8, 6).to(dtype)).float(), torch.arange(8) % 3)


def stepping_in_backward(model, parameters, make=lambda p: SGD([p], lr=0.1), seen=None):
    """Let every parameter's optimizer step as soon as its gradient is there."""
    optimizers = {p: make(p) for p in parameters}

    def step(parameter):
        if seen is not None:
            seen.append(parameter.grad.double().norm().item())
        optimizers[parameter].step()
        parameter.grad = None

    return [p.register_post_accumulate_grad_hook(step) for p in parameters]


@pytest.fixture(name="watched")
def _watched(tmp_path):
    def watched(loop, **options):
        path = tmp_path / "run.gradscope"
        schedule = Schedule(0)
        watch = TrainingWatch(path, "run", make_captures=script_captures_by(schedule), **options)
        watch.start()
        try:
            loop()
        finally:
            watch.stop()
        return load_recording(path), watch.steps

    return watched


def optimizers_of(recording):
    return recording.evidence_of(TrainedOptimizer)


def gradients_of(recording, step):
    return [
        one.gradient.norm
        for one in recording.parameter_stats
        if one.step == step and one.gradient is not None
    ]


def test_the_steps_within_a_backward_are_one(watched):
    model, seen = net(), []

    def loop():
        stepping_in_backward(model, list(model.parameters()), seen=seen)
        for _ in range(STEPS):
            loss_of(model).backward()

    recording, steps = watched(loop)
    assert steps == STEPS == len(recording.steps)
    count = len(list(model.parameters()))
    for step in range(STEPS):
        events = [event for event in recording.events if event.step == step]
        assert [event.kind for event in events] == ["backward", "step"]
        backward, made = (dict(event.numbers) for event in events)
        assert (backward["reached"], backward["stale"], backward["added"]) == (count, 0, 0)
        assert [made[name] for name in ("parameters", "fresh", "stale", "none", "backwards")] == [
            count,
            count,
            0,
            0,
            1,
        ]
        expected = sorted(seen[step * count : (step + 1) * count])
        assert sorted(gradients_of(recording, step)) == pytest.approx(expected, rel=1e-6)
        assert made["norm"] == pytest.approx(sum(norm**2 for norm in expected) ** 0.5, rel=1e-6)
    assert {step.optimizer for step in recording.steps} == {"SGD(lr=0.1)"}
    assert not judge(recording).findings


def test_optimizers_that_step_within_a_backward_are_one_row_of_the_report(watched):
    def loop():
        model = net()
        stepping_in_backward(model, list(model.parameters())[:3])
        stepping_in_backward(model, list(model.parameters())[3:], lambda p: AdamW([p], lr=0.01))
        for _ in range(STEPS):
            loss_of(model).backward()

    recording, steps = watched(loop)
    (row,) = Optimizers(recording, windows(recording)).rows
    assert (row.steps, row.parameters) == (STEPS, 6)
    assert steps == STEPS
    assert len(recording.captured_steps) == FIRST


def test_an_ordinary_optimizer_for_the_rest_steps_by_itself(watched):
    def loop():
        model = net()
        head = list(model[-1].parameters())
        stepping_in_backward(model, list(model[:-1].parameters()))
        optimizer = AdamW(head, lr=0.01)
        for _ in range(STEPS):
            loss_of(model).backward()
            optimizer.step()
            optimizer.zero_grad()

    recording, _ = watched(loop)
    steps = [dict(event.numbers) for event in recording.events if event.kind == "step"]
    assert [one["fresh"] for one in steps] == [4, 2] * STEPS
    assert [one["backwards"] for one in steps] == [1, 1] * STEPS
    assert not judge(recording).findings


def test_gradients_zeroed_within_a_backward_leave_the_others_alone(watched):
    def loop():
        model = net()
        optimizers = {p: SGD([p], lr=0.1) for p in model[0].parameters()}
        rest = SGD(model[2:].parameters(), lr=0.1)

        def step(parameter):
            optimizers[parameter].step()
            optimizers[parameter].zero_grad(set_to_none=False)

        for parameter in optimizers:
            parameter.register_post_accumulate_grad_hook(step)
        for _ in range(STEPS):
            loss_of(model).backward()
            rest.step()
            rest.zero_grad()

    recording, _ = watched(loop)
    steps = [dict(event.numbers) for event in recording.events if event.kind == "step"]
    assert [(one["fresh"], one["stale"]) for one in steps] == [(2, 0), (4, 0)] * STEPS
    assert not judge(recording).findings


def test_a_limit_of_steps_counts_those_within_a_backward_once(watched):
    def loop():
        model = net()
        stepping_in_backward(model, list(model.parameters()))
        for _ in range(STEPS):
            loss_of(model).backward()

    recording, steps = watched(loop, max_steps=5)
    assert steps == len(recording.steps) == 5


def test_accumulating_backwards_beside_one_that_steps(watched):
    """Hooks that step in every second backward alone."""

    def loop():
        model = net()
        optimizers = {p: SGD([p], lr=0.1) for p in model.parameters()}
        passes = 0

        def step(parameter):
            if passes % 2:
                optimizers[parameter].step()
                parameter.grad = None

        for parameter in optimizers:
            parameter.register_post_accumulate_grad_hook(step)
        for passes in range(2 * STEPS):  # noqa: B007 - the hook reads it
            (loss_of(model) / 2).backward()

    recording, steps = watched(loop)
    assert steps == STEPS
    made = [dict(event.numbers) for event in recording.events if event.kind == "step"]
    assert {(one["fresh"], one["stale"], one["backwards"]) for one in made} == {(6, 0, 2)}
    assert not judge(recording).findings


@pytest.mark.nightly
def test_an_exception_of_a_hook_leaves_no_step_open(watched):
    def loop():
        model = net()
        optimizers = {p: SGD([p], lr=0.1) for p in model.parameters()}
        failures = iter([True])

        def step(parameter):
            optimizers[parameter].step()
            parameter.grad = None
            if parameter is model[0].weight and next(failures, False):
                raise ValueError("once")

        for parameter in optimizers:
            parameter.register_post_accumulate_grad_hook(step)
        for attempt in range(STEPS):
            if attempt:
                loss_of(model).backward()
            else:
                with pytest.raises(ValueError, match="once"):
                    loss_of(model).backward()

    recording, steps = watched(loop)
    assert steps == len(recording.steps) == STEPS


class Wrapper(Optimizer):
    """Lets another step, of which it has the groups."""

    def __init__(self, inner):
        self.inner = inner
        super().__init__(inner.param_groups, {})
        self.param_groups = inner.param_groups

    def step(self, closure=None):
        return self.inner.step(closure)


class Lookahead(Optimizer):
    """Goes back half the way every few steps."""

    def __init__(self, inner):
        self.inner, self.count = inner, 0
        super().__init__([{"params": group["params"]} for group in inner.param_groups], {})
        self.slow = [p.detach().clone() for group in self.param_groups for p in group["params"]]

    @torch.no_grad()
    def step(self, closure=None):
        loss = self.inner.step(closure)
        self.count += 1
        if self.count % 3 == 0:
            for slow, p in zip(self.slow, self.param_groups[0]["params"], strict=True):
                p.copy_(slow.lerp_(p, 0.5))
        return loss


class Several(Optimizer):
    """Lets several step."""

    def __init__(self, *inner):
        self.inner = inner
        super().__init__([dict(group) for one in inner for group in one.param_groups], {})

    def step(self, closure=None):
        for one in self.inner:
            one.step()


class Nothing(Several):
    """Holds nothing that is trained itself."""

    def __init__(self, *inner):
        super().__init__(*inner)
        self.param_groups = [{"params": [nn.Parameter(torch.zeros(1))]}]


class MatricesAlone(Optimizer):
    """Moves some parameters itself, and lets another move the rest."""

    def __init__(self, parameters):
        parameters = list(parameters)
        super().__init__([p for p in parameters if p.dim() > 1], {"lr": 0.01})
        self.rest = AdamW([p for p in parameters if p.dim() < 2], lr=0.01)

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            p.add_(p.grad.sign(), alpha=-0.01)
        self.rest.step()


class MasterCopies(Optimizer):
    """Trains float32 copies of half-precision parameters."""

    def __init__(self, parameters):
        self.model = list(parameters)
        self.master = [nn.Parameter(p.detach().float()) for p in self.model]
        super().__init__(self.model, {"lr": 0.1})
        self.inner = SGD(self.master, lr=0.1)

    @torch.no_grad()
    def step(self, closure=None):
        for own, copy in zip(self.model, self.master, strict=True):
            copy.grad = own.grad.float()
        self.inner.step()
        for own, copy in zip(self.model, self.master, strict=True):
            own.copy_(copy)


class Sharpness(Optimizer):
    """Minimizes sharpness: a second backward within the step."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})
        self.base = SGD(self.param_groups, lr=0.1)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def step(self, closure=None):
        moves = [(p, 0.01 * p.grad) for p in self.param_groups[0]["params"]]
        for p, move in moves:
            p.add_(move)
        self.zero_grad()
        with torch.enable_grad():
            closure()
        for p, move in moves:
            p.sub_(move)
        self.base.step()
        self.zero_grad()


WRAPPERS = {
    "wrapper": lambda model: Wrapper(SGD(model.parameters(), lr=0.1)),
    "wrapper of a wrapper": lambda model: Wrapper(Wrapper(SGD(model.parameters(), lr=0.1))),
    "lookahead": lambda model: Lookahead(SGD(model.parameters(), lr=0.1)),
    "several": lambda model: Several(
        SGD(model[:2].parameters(), lr=0.1), AdamW(model[2:].parameters(), lr=0.01)
    ),
    "several in one that holds nothing": lambda model: Nothing(
        SGD(model[:2].parameters(), lr=0.1), AdamW(model[2:].parameters(), lr=0.01)
    ),
    "matrices alone": lambda model: MatricesAlone(model.parameters()),
    "master copies": lambda model: MasterCopies(model.bfloat16().parameters()),
    "sharpness": lambda model: Sharpness(model.parameters()),
    "zero redundancy": lambda model: ZeroRedundancyOptimizer(
        model.parameters(), optimizer_class=SGD, lr=0.1
    ),
}


@pytest.fixture(name="process_group")
def _process_group():
    before = sys.excepthook
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    sys.excepthook = before


@pytest.mark.nightly
@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("name", some_on_push(WRAPPERS, 5))
def test_an_optimizer_that_lets_others_step_makes_one_step(watched, name):
    model = net()

    def loop():
        optimizer = WRAPPERS[name](model)

        def closure():
            loss = loss_of(model)
            loss.backward()
            return loss

        for _ in range(STEPS):
            model.zero_grad()
            closure()
            optimizer.step(closure if name == "sharpness" else None)

    recording, steps = watched(loop)
    assert steps == len(recording.steps) == STEPS
    assert len({look.step for look in recording.captured_steps}) == FIRST
    (row,) = Optimizers(recording, windows(recording)).rows
    assert row.steps == STEPS
    names = [one.name for one in recording.parameters]
    for step in range(STEPS):
        found = {
            names[one.parameter]
            for one in recording.parameter_stats
            if one.step == step and one.gradient is not None
        }
        assert found == {f"model.{name}" for name, _ in model.named_parameters()}
    assert not [one for one in judge(recording).findings if one.rule < "GS400"]


def test_a_scaler_that_steps_a_wrapper_has_skipped_nothing(watched):
    def loop():
        model = net()
        optimizer = Wrapper(SGD(model.parameters(), lr=0.1))
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for _ in range(STEPS):
            optimizer.zero_grad()
            scaler.scale(loss_of(model)).backward()
            scaler.step(optimizer)
            scaler.update()

    recording, steps = watched(loop)
    assert steps == STEPS
    scaled = [dict(event.numbers) for event in recording.events if event.kind == "scaler-step"]
    assert [one["skipped"] for one in scaled] == [0] * STEPS


def test_a_step_that_an_exception_leaves_swallows_no_other(watched):
    class Failing(Wrapper):
        fails = True

        def step(self, closure=None):
            super().step(closure)
            if self.fails:
                raise ValueError("once")

    def loop():
        model = net()
        optimizer = Failing(SGD(model.parameters(), lr=0.1))
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss_of(model).backward()
            try:
                optimizer.step()
            except ValueError:
                optimizer.fails = False

    recording, steps = watched(loop)
    assert steps == len(recording.steps) == STEPS
    made = [dict(event.numbers) for event in recording.events if event.kind == "step"]
    assert [one["fresh"] for one in made] == [6] * STEPS


@pytest.mark.nightly
def test_a_loop_within_a_closure_makes_steps_of_its_own(watched):
    """An outer optimizer whose closure trains an inner model."""
    inner_steps = 3

    def loop():
        outer, inner = net(), net()
        optimizer = SGD(outer.parameters(), lr=0.1)
        inner_optimizer = SGD(inner.parameters(), lr=0.1)

        def closure():
            for _ in range(inner_steps):
                inner_optimizer.zero_grad()
                loss_of(inner).backward()
                inner_optimizer.step()
            optimizer.zero_grad()
            loss = loss_of(outer)
            loss.backward()
            return loss

        for _ in range(STEPS):
            optimizer.step(closure)

    recording, steps = watched(loop)
    assert inner_steps * STEPS <= steps <= (inner_steps + 1) * STEPS
    assert steps == len(recording.steps)


def test_closures_and_line_searches_make_one_step_each(watched):
    def loop():
        model = net()
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
        x, y = torch.randn(8, 6), torch.arange(8) % 3

        def closure():
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            return loss

        for _ in range(STEPS):
            optimizer.step(closure)

    recording, steps = watched(loop)
    assert steps == len(recording.steps) == STEPS


@pytest.mark.nightly
def test_steps_in_another_thread_are_steps(watched):
    def loop():
        model = net()
        optimizer = SGD(model.parameters(), lr=0.1)
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss_of(model).backward()
            thread = threading.Thread(target=optimizer.step)
            thread.start()
            thread.join()

    recording, steps = watched(loop)
    assert steps == len(recording.steps) == STEPS


@pytest.mark.nightly
def test_one_optimizer_is_as_it_was(watched):
    """The near miss: two that take turns are two."""

    def loop():
        first, second = net(), net()
        optimizers = [(one, SGD(one.parameters(), lr=0.1)) for one in (first, second)]
        for _ in range(STEPS):
            for model, optimizer in optimizers:
                optimizer.zero_grad()
                loss_of(model).backward()
                optimizer.step()

    recording, steps = watched(loop)
    assert steps == 2 * STEPS
    assert [one.joined for one in optimizers_of(recording)] == [None, None]
