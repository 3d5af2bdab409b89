"""GS605, judged from loops with a gradient scaler."""

import pytest
import torch

from gradscope.rules.engine import judge
from tests.rules.accumulation.runs import Run

SCALE, STEP = 11, 12


def loop(steps=10, *, class_name="SGD", through_scaler=(), unscaled=(), written=(), scale=1024.0):
    """Steps on scaled gradients; those in `through_scaler` are made by the scaler."""
    run = Run()
    weights = run.model("model", 4)
    optimizer = run.optimizer(weights, class_name)
    for step in range(steps):
        run.zero(optimizer, line=10)
        run.backward(weights, line=SCALE, scaled=1, scale=scale)
        if step in unscaled:
            run.event("unscale", 13, optimizer=optimizer, scale=scale)
        run.step(optimizer, line=STEP, written=4 * (step in written))
        if step in through_scaler:
            run.event("scaler-step", STEP, optimizer=optimizer, skipped=0, found_inf=0)
    return run


def said(run):
    return [one for one in judge(run.recording()).findings if one.rule == "GS605"]


@pytest.mark.parametrize(
    ("class_name", "severity"), [("SGD", "error"), ("AdamW", "warning"), ("Lion", "warning")]
)
def test_plain_steps_on_scaled_gradients_are_found_at_the_step(class_name, severity):
    (found,) = said(loop(class_name=class_name))
    assert (found.severity, found.location.line, found.count) == (severity, STEP, 10)
    assert [position.line for position in found.related] == [SCALE]
    assert dict(found.evidence)["scale"] == 1024


@pytest.mark.parametrize(
    "chosen",
    [
        {"through_scaler": range(10)},
        {"unscaled": range(10)},
        {"written": range(10)},
        {"scale": 1.0},
        {"steps": 1},
    ],
    ids=["scaler.step", "unscale_", "divided by hand", "a scale of 1", "a single step"],
)
def test_steps_whose_gradients_are_unscaled_are_fine(chosen):
    assert not said(loop(**chosen))


@pytest.mark.parametrize(("through", "found"), [(1, True), (2, False)])
def test_nearly_all_steps_must_show_it(through, found):
    assert bool(said(loop(through_scaler=range(through)))) == found


def test_an_optimizer_beside_one_that_the_scaler_steps_is_judged_by_itself():
    run = Run()
    actor, critic = run.model("actor", 2), run.model("critic", 2)
    first, second = run.optimizer(actor), run.optimizer(critic, name="critic_optimizer")
    for _ in range(6):
        for weights, optimizer, line in ((actor, first, 20), (critic, second, 30)):
            run.zero(optimizer, line=line)
            run.backward(weights, line=line + 1, scaled=1, scale=256)
            run.step(optimizer, line=line + 2)
            if optimizer == first:
                run.event("scaler-step", line + 2, optimizer=first, skipped=0, found_inf=0)
    (found,) = said(run)
    assert found.location.line == 32


@pytest.mark.parametrize(("make", "factor"), [(torch.optim.SGD, 1024), (torch.optim.Adam, 1)])
def test_scale_multiplies_steps_of_sgd_alone(make, factor):
    moved = []
    for scale in (1.0, 1024.0):
        weight = torch.nn.Parameter(torch.zeros(3))
        weight.grad = scale * torch.tensor([1.0, -2.0, 3.0])
        make([weight], lr=1e-3).step()
        moved.append(weight.detach().norm().item())
    assert moved[1] / moved[0] == pytest.approx(factor, rel=1e-5)
