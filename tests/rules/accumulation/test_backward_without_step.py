"""GS307, judged from loops as users write them."""

import pytest

from tests.rules.accumulation.runs import Run
from tests.rules.watching import findings_of_script


def loop(passes, *, zeroes, has_optimizer=True):
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights) if has_optimizer else None
    for _ in range(passes):
        if zeroes:
            run.zero(weights if sgd is None else sgd, line=10)
        run.backward(weights, line=11)
    return run


@pytest.mark.parametrize(
    ("passes", "zeroes", "is_found"),
    [(2, True, False), (3, True, True), (15, False, False), (16, False, True)],
)
def test_a_loop_that_never_steps_is_found_at_its_backward(passes, zeroes, is_found):
    found = loop(passes, zeroes=zeroes).findings("GS307")
    assert [(one.severity, one.location.line) for one in found] == [("warning", 11)] * is_found


def test_a_script_without_an_optimizer_only_looks_at_gradients():
    assert not loop(20, zeroes=True, has_optimizer=False).findings("GS307")


def players(*, critic_steps, reaches_critic=True, steps=6):
    run = Run()
    generator, critic = run.model("netG", 2), run.model("netD", 2)
    adam_g = run.optimizer(generator, "Adam", line=3, name="opt_g")
    adam_d = run.optimizer(critic, "Adam", line=4, name="opt_d")
    for _ in range(steps):
        run.zero(adam_g, line=10)
        run.zero(adam_d, line=11)
        run.backward((*generator, *critic) if reaches_critic else generator, line=12)
        run.step(adam_g, line=13)
        if critic_steps:
            run.step(adam_d, line=14)
    return run


def test_an_optimizer_that_is_forgotten_is_found_where_it_was_made():
    (found,) = players(critic_steps=False).findings("GS307")
    assert (found.severity, found.location.line) == ("warning", 4)
    assert found.message.startswith("opt_d never steps")
    assert all(name.startswith("netD.") for name in found.parameters)


ACTOR_CRITIC = """
import torch

torch.manual_seed(0)
actor, critic = torch.nn.Linear(3, 2), torch.nn.Linear(3, 1)
opt = torch.optim.Adam(actor.parameters(), lr=0.01)
sgd = torch.optim.SGD(critic.parameters(), lr=0.01)
for step in range(20):
    x = torch.randn(8, 3)
    if step < {zeroed}:
        opt.zero_grad()
    actor(x).square().mean().backward()
    {step}
    sgd.zero_grad()
    critic(x).square().mean().backward()
    sgd.step()
"""


@pytest.mark.parametrize(
    ("step", "zeroed", "is_found"),
    [("pass", 20, True), ("opt.step()", 20, False), ("pass", 4, False)],
)
def test_an_optimizer_that_only_erases_gradients_never_steps(step, zeroed, is_found, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(ACTOR_CRITIC.format(step=step, zeroed=zeroed))
    found = [one for one in findings_of_script(script, tmp_path) if one.rule == "GS307"]
    assert [one.location.source.split()[0] for one in found] == ["opt"] * is_found
    assert all(name.startswith("actor.") for one in found for name in one.parameters)


def test_optimizers_that_step_and_those_of_what_is_not_reached_are_fine():
    assert not players(critic_steps=True).findings("GS307")
    assert not players(critic_steps=False, reaches_critic=False).findings("GS307")
    assert not players(critic_steps=False, steps=4).findings("GS307")


def test_an_optimizer_whose_place_another_took_is_fine():
    run = Run()
    weights = run.model("model", 2)
    run.optimizer(weights, line=3)
    adam = run.optimizer(weights, "Adam", line=4)
    for _ in range(6):
        run.zero(adam, line=10)
        run.backward(weights, line=11)
        run.step(adam, line=12)
    assert not run.findings("GS307")
