import math

import pytest
import torch

import gradscope
from gradscope.rules.engine import judge
from tests.nightly import some_on_push
from tests.rules.accumulation.runs import Run
from tests.rules.optimizing import Net, inspected, verdict, with_stats
from tests.rules.watching import findings_of_script


def recording_of(kind, **chosen):
    return inspected(lambda ps: kind(ps, lr=1e-3, **chosen)).recording


def with_ratio(recording, ratio):
    return with_stats(
        recording, weight_norm=1.0, update_norm=lambda s: None if s.update_norm is None else ratio
    )


@pytest.mark.parametrize(
    ("kind", "ratio", "severity"),
    [
        (torch.optim.SGD, 1.0001e-4, None),
        (torch.optim.SGD, 1e-4, None),
        (torch.optim.SGD, 0.9999e-4, "note"),
        (torch.optim.SGD, 1.0001e-7, "note"),
        (torch.optim.SGD, 0.9999e-7, "warning"),
        (torch.optim.AdamW, 1.0001e-7, None),
        (torch.optim.AdamW, 0.9999e-7, "warning"),
        (torch.optim.AdamW, 0.0, "warning"),
    ],
)
def test_limits(kind, ratio, severity):
    assert verdict(with_ratio(recording_of(kind), ratio), "GS109") == severity


@pytest.mark.parametrize(("ratio", "severity"), [(1.01e-5, None), (0.99e-5, "note")])
def test_momentum_counts(ratio, severity):
    recording = with_ratio(recording_of(torch.optim.SGD, momentum=0.9), ratio)
    assert verdict(recording, "GS109") == severity


@pytest.mark.parametrize("rate", some_on_push([1e-3, 1e-5, 1e-6], {0, 1}))
def test_rates_of_fine_tuning_are_left_alone(rate):
    report = inspected(lambda ps: torch.optim.AdamW(ps, lr=rate))
    assert verdict(report.recording, "GS109") is None


@pytest.mark.parametrize(
    ("factor", "reason"),
    [(0.0, "the learning rate is 0"), (1e-5, "a scheduler holds the learning rate")],
)
def test_warm_up_is_not_judged(factor, reason):
    def warming(parameters):
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: factor)
        return optimizer

    skipped = judge(inspected(warming).recording).skipped
    (why,) = [one.reason for one in skipped if one.rule == "GS109"]
    assert why.startswith(reason)


GROUPS = """
import torch
from torch import nn

torch.manual_seed(0)
body, head = nn.Sequential(nn.Linear(8, 16), nn.ReLU()), nn.Linear(16, 1)
model = nn.Sequential(body, head)
groups = [{"params": body.parameters(), "lr": RATE}, {"params": head.parameters(), "lr": 1e-3}]
optimizer = torch.optim.KIND(groups)  # here
for _ in range(5):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    (model(x) - x[:, :1]).square().mean().backward()
    optimizer.step()
"""


def of_groups(tmp_path, kind, rate):
    script = tmp_path / "train.py"
    script.write_text(GROUPS.replace("KIND", kind).replace("RATE", rate))
    return [one for one in findings_of_script(script, tmp_path) if one.rule == "GS109"]


@pytest.mark.parametrize("kind", some_on_push(["AdamW", "SGD", "RMSprop"], 2))
def test_a_group_that_stands_still_beside_another_is_a_warning(tmp_path, kind):
    (found,) = of_groups(tmp_path, kind, "1e-12")
    assert (found.severity, found.location.source[-6:]) == ("warning", "# here")
    assert [one.rpartition(".")[2] for one in found.parameters] == ["weight", "bias"]


# A rate of 0 freezes a group, and layer-wise rates are small for the first layers.
@pytest.mark.parametrize("rate", some_on_push(["0.0", "2e-9", "1e-7", "1e-5"], 2))
def test_other_rates_of_groups_are_fine(tmp_path, rate):
    assert not of_groups(tmp_path, "AdamW", rate)


def test_half_precision_is_not_judged():
    model = Net().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    x = torch.randn(4, 6, dtype=torch.bfloat16)
    report = gradscope.inspect(model, x, lambda y: y.square().mean(), optimizer=optimizer)
    assert verdict(report.recording, "GS109") is None


def test_branch_that_is_damped_is_no_model_that_stands_still():
    recording = recording_of(torch.optim.AdamW)
    largest = max(s.parameter for s in recording.parameter_stats)
    recording = with_stats(
        recording,
        weight_norm=1.0,
        update_norm=lambda s: 1e-3 if s.parameter == largest - 1 else 1e-9,
    )
    assert verdict(recording, "GS109") is None


def scheduled(rates, *, others=()):
    """A run whose optimizer has these learning rates, one a step; `others` of a second group."""
    run = Run()
    weights = run.model("model", 4)
    adam = run.optimizer(weights, "Adam")
    for step, rate in enumerate(rates):
        run.zero(adam, line=10)
        run.backward(weights, line=11)
        run.step(adam, line=12, lr=rate)
        run.event("scheduler", 13, optimizer=adam, subject="schedule")
        if others:
            run.describe(f"Adam(lr={rate:g}, {others[step]:g})")
    return [one for one in judge(run.recording()).findings if one.rule == "GS109"]


@pytest.mark.parametrize(
    ("rates", "severities"),
    [
        ([0.1] * 32 + [0.0] * 8, ["error"]),
        ([0.1] * 33 + [0.0] * 7, []),
        ([0.1] * 40 + [0.0] * 10, ["error"]),
        ([0.1] * 41 + [0.0] * 10, []),
        ([0.1] * 20 + [0.9e-6] * 20, ["warning"]),
        ([0.1] * 20 + [1.1e-6] * 20, []),
        ([0.0] * 8 + [0.1] * 40, ["warning"]),
        ([0.0] * 7 + [0.1] * 40, []),
        ([1e-9] * 20 + [0.1] * 40, []),
    ],
)
def test_a_rate_of_next_to_nothing_for_many_steps(rates, severities):
    found = scheduled(rates)
    assert [one.severity for one in found] == severities
    assert [one.location.line for one in found] == [13] * len(severities)


def linear(step):
    return max(0.0, 1 - step / 100)


def cosine(step):
    return (1 + math.cos(math.pi * step / 100)) / 2


def by_tens(step):
    return 0.1 ** (step // 25)


def one_cycle(step):
    return 0.04 + 0.96 * step / 30 if step < 30 else 4e-6 + cosine((step - 30) * 10 / 7)


@pytest.mark.parametrize("schedule", [linear, cosine, by_tens, one_cycle])
def test_usual_schedules_are_fine(schedule):
    assert not scheduled([1e-3 * schedule(step) for step in range(100)])


def test_a_group_that_rests_beside_one_that_learns_is_fine():
    assert not scheduled([0.0] * 20 + [0.1] * 20, others=[0.01] * 40)
    assert not scheduled([0.1] * 20 + [0.0] * 20, others=[0.01] * 40)


WARM_UP = """
import torch
from torch import nn

def factor(step):
    if step < 20:
        return FACTOR  # here
    return 1.0

model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: factor(step))  # lambda
for step in range(40):
    optimizer.zero_grad()
    model(torch.ones(4, 3)).square().mean().backward()
    optimizer.step()
    scheduler.step()
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("factor", "mark"),
    some_on_push(
        [("(step + 1) // 20", "# here"), ("0.0", "# lambda"), ("step / 20", None)], {0, 1}
    ),
)
def test_warm_up_at_zero_is_named_at_the_line_that_rounds_down(tmp_path, factor, mark):
    script = tmp_path / "train.py"
    script.write_text(WARM_UP.replace("FACTOR", factor))
    found = [one for one in findings_of_script(script, tmp_path) if one.rule == "GS109"]
    lines = WARM_UP.splitlines()
    assert [lines[one.location.line - 1].partition("# ")[1:] for one in found] == (
        [tuple(mark.partition("# ")[1:])] if mark else []
    )


RESUMED = """
import torch

model = torch.nn.Linear(4, 1)
sgd = torch.optim.SGD(model.parameters(), lr={rate})
state = sgd.state_dict()
state["param_groups"][0].update(initial_lr=0.1, lr={loaded})
sgd.load_state_dict(state)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(sgd, 20)
for _ in range({steps}):
    loss = model(torch.randn(8, 4)).square().mean()
    sgd.zero_grad()
    loss.backward()
    sgd.step()
    cosine.step()
"""


@pytest.mark.parametrize(
    ("rate", "loaded", "steps", "severities"),
    some_on_push(
        [
            (0.1, 0.0, 8, ["error"]),
            (0.1, 0.0, 7, []),
            (0.1, 0.05, 8, []),
        ],
        {0, 1},
    ),
)
def test_a_schedule_that_was_over_before_the_run_is_an_error(
    tmp_path, rate, loaded, steps, severities
):
    script = tmp_path / "resumed.py"
    script.write_text(RESUMED.format(rate=rate, loaded=loaded, steps=steps))
    found = [one for one in findings_of_script(script, tmp_path) if one.rule == "GS109"]
    assert [one.severity for one in found] == severities
    assert all("is 0 in all of its 8 steps" in one.message for one in found)


BY_HAND = """
import torch

model = torch.nn.Linear(4, 1)
groups = [{{"params": [model.weight]}}, {{"params": [model.bias], "lr": 0.0}}]
sgd = torch.optim.SGD(groups, lr={rate})
for step in range({steps}):
    sgd.param_groups[0]["lr"] = {later}
    sgd.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    sgd.step()
"""


@pytest.mark.parametrize(
    ("rate", "later", "steps", "severities"),
    some_on_push(
        [
            ("16 // 256", "16 // 256", 8, ["warning"]),
            ("16 // 256", "16 // 256", 7, []),
            ("0.0", "0.01 if step > 2 else 0.0", 8, []),
            ("0.01", "0.01", 8, []),
        ],
        {0, 2},
    ),
)
def test_a_rate_of_zero_in_the_whole_run_is_a_warning(tmp_path, rate, later, steps, severities):
    script = tmp_path / "train.py"
    script.write_text(BY_HAND.format(rate=rate, later=later, steps=steps))
    found = [one for one in findings_of_script(script, tmp_path) if one.rule == "GS109"]
    assert [one.severity for one in found] == severities
    assert all("is 0 in all of its 8 steps" in one.message for one in found)
    assert all(one.location.source.startswith("sgd = ") for one in found)


LATER = """
import torch

model, critic = torch.nn.Linear(4, 1), torch.nn.Linear(1, 1)
adam = torch.optim.Adam(model.parameters(), lr=1e-3)
late = torch.optim.Adam(critic.parameters(), lr=1e-3)
start = torch.optim.lr_scheduler.LambdaLR(late, lambda step: float(step >= 1000))
for _ in range(20):
    loss = critic(model(torch.randn(8, 4))).square().mean()
    adam.zero_grad()
    late.zero_grad()
    loss.backward()
    adam.step()
    late.step()
    start.step()
"""


def test_a_part_that_starts_to_learn_after_the_run_is_fine(tmp_path):
    script = tmp_path / "later.py"
    script.write_text(LATER)
    assert not [one for one in findings_of_script(script, tmp_path) if one.rule == "GS109"]


TWO_PHASES = """
import torch

def fit(model, sgd, steps):
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(sgd, steps)
    for _ in range(steps):
        sgd.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        sgd.step()
        cosine.step()

def made():
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

first, second = made(), made()
fit(*first, 10)
RESUMED
fit(*second, 12)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("resumed", [True, False])
def test_a_second_phase_that_resumes_a_finished_schedule_is_an_error(resumed, tmp_path):
    script = tmp_path / "phases.py"
    load = "second[1].load_state_dict(first[1].state_dict())" if resumed else ""
    script.write_text(TWO_PHASES.replace("RESUMED", load))
    found = [one for one in findings_of_script(script, tmp_path) if one.rule == "GS109"]
    assert [one.severity for one in found] == ["error"] * resumed
