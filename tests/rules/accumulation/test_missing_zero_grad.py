"""GS301, judged from loops as users write them."""

import dataclasses

import pytest

from gradscope.rules.engine import judge
from tests.rules.accumulation.runs import Run

ZERO, BACKWARD, STEP = 10, 11, 12


def loop(steps: int, zero_every: int | None = None, *, class_name: str = "SGD", passes: int = 1):
    """A loop that zeroes before every so many steps; never for None."""
    run = Run()
    weights = run.model("model", 4)
    optimizer = run.optimizer(weights, class_name)
    for step in range(steps):
        if zero_every is not None and step % zero_every == 0:
            run.zero(optimizer, line=ZERO)
        for _ in range(passes):
            run.backward(weights, line=BACKWARD, divided=passes)
        run.step(optimizer, line=STEP)
    return run


@pytest.mark.parametrize("class_name", ["SGD", "Adam", "LBFGS"])
def test_a_loop_without_zero_grad_is_an_error_at_its_backward(class_name):
    (found,) = loop(10, class_name=class_name).findings("GS301")
    assert (found.severity, found.location.line) == ("error", BACKWARD)
    assert (found.step, found.count) == (1, 9)
    assert [position.line for position in found.related] == [STEP]
    assert dict(found.evidence)["passes_in_last_step"] == 10
    assert "never zeroed" in found.message
    assert len(found.parameters) == 4


@pytest.mark.parametrize("passes", [1, 2, 4])
def test_a_loop_with_zero_grad_is_fine_however_many_passes_a_step_has(passes):
    assert not loop(12, 1, passes=passes).findings("GS301")


@pytest.mark.parametrize(
    ("zero_every", "steps", "severity"),
    [
        (1, 40, None),
        (2, 40, "warning"),  # 20 of 39 steps
        (4, 40, "warning"),  # 30 of 39
        (10, 39, "warning"),  # 35 of 38
        (20, 40, "error"),  # 38 of 39
    ],
)
def test_zeroing_once_in_a_while_is_worse_the_rarer_it_is(zero_every, steps, severity):
    found = loop(steps, zero_every).findings("GS301")
    share = sum(step % zero_every != 0 for step in range(1, steps)) / (steps - 1)
    expected = "error" if share >= 0.9 else "warning" if share >= 0.5 else None
    assert severity in (expected, "warning")
    assert [one.severity for one in found] == ([expected] if expected else [])
    if found:
        assert [position.line for position in found[0].related] == [STEP, ZERO]


def test_a_single_step_that_shows_it_is_no_error():
    (found,) = loop(2).findings("GS301")
    assert found.severity == "warning"


def test_one_step_cannot_show_it():
    assert not loop(1).findings("GS301")


def test_the_first_steps_of_a_run_without_zero_grad_are_a_minority_that_says_nothing():
    run = Run()
    weights = run.model("model", 2)
    sgd = run.optimizer(weights)
    for step in range(20):
        if step > 3:
            run.zero(sgd, line=ZERO)
        run.backward(weights, line=BACKWARD)
        run.step(sgd, line=STEP)
    assert not run.findings("GS301")


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zeroing_after_the_step_is_as_good(set_to_none):
    run = Run()
    weights = run.model("model", 2)
    sgd = run.optimizer(weights)
    for _ in range(10):
        run.backward(weights, line=BACKWARD)
        run.step(sgd, line=STEP)
        run.zero(sgd, line=STEP + 1, set_to_none=set_to_none)
    assert not run.findings("GS301")


def test_a_gan_whose_generator_leaves_gradients_in_the_discriminator_is_fine():
    run = Run()
    generator, critic = run.model("netG", 4), run.model("netD", 4)
    adam_g = run.optimizer(generator, "Adam", line=3)
    adam_d = run.optimizer(critic, "Adam", line=4)
    for _ in range(10):
        run.zero(critic, line=10, subject="netD")
        run.backward(critic, line=11)
        run.backward(critic, line=12)
        run.step(adam_d, line=13)
        run.zero(generator, line=14, subject="netG")
        run.backward((*generator, *critic), line=15)
        run.step(adam_g, line=16)
    assert not run.findings("GS301")


def test_a_gan_that_never_zeroes_its_discriminator_is_an_error():
    run = Run()
    generator, critic = run.model("netG", 4), run.model("netD", 4)
    adam_g = run.optimizer(generator, "Adam", line=3)
    adam_d = run.optimizer(critic, "Adam", line=4)
    for _ in range(10):
        run.backward(critic, line=11)
        run.step(adam_d, line=13)
        run.zero(adam_g, line=14)
        run.backward((*generator, *critic), line=15)
        run.step(adam_g, line=16)
    (found,) = run.findings("GS301")
    assert (found.severity, found.location.line) == ("error", 11)
    assert all(name.startswith("netD.") for name in found.parameters)


def test_several_critic_steps_for_one_of_the_generator_are_fine():
    run = Run()
    generator, critic = run.model("netG", 2), run.model("netD", 2)
    adam_g = run.optimizer(generator, "Adam", line=3)
    adam_d = run.optimizer(critic, "Adam", line=4)
    for _ in range(5):
        for _ in range(5):
            run.zero(adam_d, line=10)
            run.backward(critic, line=11)
            run.step(adam_d, line=12)
        run.zero(adam_g, line=13)
        run.backward((*generator, *critic), line=14)
        run.step(adam_g, line=15)
    assert not run.findings("GS301")


def test_parameters_that_zero_grad_leaves_out_are_found():
    """The model zeroes its own gradients; those of the loss, in the same optimizer, stay."""
    run = Run()
    model, loss = run.model("model", 4), run.model("criterion", 1)
    sgd = run.optimizer((*model, *loss))
    for _ in range(10):
        run.zero(model, line=ZERO, subject="model")
        run.backward((*model, *loss), line=BACKWARD)
        run.step(sgd, line=STEP)
    (found,) = run.findings("GS301")
    assert found.severity == "error"


def test_an_optimizer_for_each_parameter_is_told_of_once():
    run = Run()
    weights = run.model("model", 3)
    optimizers = [run.optimizer([index], line=3) for index in weights]
    for _ in range(6):
        run.backward(weights, line=BACKWARD)
        for optimizer in optimizers:
            run.step(optimizer, line=STEP)
    (found,) = run.findings("GS301")
    assert (found.count, len(found.parameters)) == (15, 3)


def test_a_new_optimizer_every_step_does_not_hide_it():
    run = Run()
    weights = run.model("model", 3)
    for _ in range(4):
        run.backward(weights, line=BACKWARD)
        run.step(run.optimizer(weights, line=3), line=STEP)
    found = judge(run.recording()).findings
    assert ("GS301", "error", 3) in [(one.rule, one.severity, one.count) for one in found]


def test_without_the_number_the_passes_tell():
    recording = loop(10).recording()
    events = [
        dataclasses.replace(one, numbers=tuple(n for n in one.numbers if n[0] != "carried"))
        for one in recording.events
    ]
    (found,) = judge(dataclasses.replace(recording, events=tuple(events))).findings
    assert (found.rule, found.count) == ("GS301", 9)
