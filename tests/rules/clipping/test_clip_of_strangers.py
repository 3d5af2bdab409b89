"""GS411, judged from loops that clip another model than the trained one."""

import pytest

from tests.rules.clipping.clipped_run import CLIP, STEP, ClippedRun


def loop(clipped, *, other="average", requires_grad=True, also=(), steps=5):
    """Train `model`; each step clips `model`, the other network, or both in one call."""
    run = ClippedRun()
    weights = run.model("model", 4)
    strangers = run.model(other, 4, requires_grad=requires_grad)
    optimizer = run.optimizer(weights)
    given = {"model": weights, "other": strangers, "both": (*weights, *strangers)}
    for _ in range(steps):
        run.zero(optimizer)
        run.backward(weights, size=0.01)
        run.clip(given[clipped], 1.0)
        for line in also:
            run.clip(given["model"], 1.0, line=line)
        run.step(optimizer)
    return run


def test_clip_of_a_copy_is_an_error_at_its_line():
    (found,) = loop("other").findings("GS411")
    assert (found.severity, found.location.line, found.count) == ("error", CLIP, 5)
    assert [position.line for position in found.related] == [STEP]
    assert found.parameters == tuple(f"average.weight{i}" for i in range(4))


def test_frozen_copy_is_found_too():
    (found,) = loop("other", requires_grad=False).findings("GS411")
    assert found.severity == "error"


@pytest.mark.parametrize("clipped", ["model", "both"])
def test_clip_of_what_is_stepped_is_right(clipped):
    assert not loop(clipped).findings("GS411")


def test_copy_that_is_clipped_beside_the_model_is_fine():
    assert not loop("other", also=[30]).findings("GS411")


def test_clip_before_an_update_by_hand_is_right():
    run = ClippedRun()
    weights, bias = run.model("model", 2), run.model("offset", 2)
    optimizer = run.optimizer(weights)
    for _ in range(5):
        run.zero(optimizer)
        run.zero(bias, line=31)
        run.backward((*weights, *bias), size=0.01)
        run.clip(bias, 1.0)  # a gradient that the script itself follows
        run.step(optimizer)
    assert not run.said_by("GS411")


@pytest.mark.parametrize(("requires_grad", "severity"), [(True, "warning"), (False, None)])
def test_another_network_is_milder_than_a_copy(requires_grad, severity):
    run = ClippedRun()
    weights = run.model("model", 4)
    backbone = run.model("backbone", 6, requires_grad=requires_grad)
    optimizer = run.optimizer(weights)
    for _ in range(5):
        run.zero(optimizer)
        run.backward(weights, size=0.01)
        run.clip(backbone, 1.0)
        run.step(optimizer)
    assert [one.severity for one in run.said_by("GS411")] == ([severity] if severity else [])


def test_clip_that_no_step_follows_is_not_judged():
    run = ClippedRun()
    weights, strangers = run.model("model", 4), run.model("average", 4)
    run.optimizer(weights)
    run.backward(weights)
    run.clip(strangers, 1.0)
    assert not run.said_by("GS411")


def actor_and_critic(clipped_before_critic, *, limit=1.0, size=5.0, steps=5, right=0):
    """Train a critic and an actor in turn; before the critic's step, one of them is clipped.

    The first `right` steps clip the critic.
    """
    run = ClippedRun()
    networks = {"actor": run.model("actor", 2), "critic": run.model("critic", 2)}
    critic_step, actor_step = (run.optimizer(networks[name]) for name in ("critic", "actor"))
    for step in range(steps):
        run.zero(critic_step)
        run.backward(networks["critic"], size=size)
        if clipped_before_critic is not None:
            run.clip(networks["critic" if step < right else clipped_before_critic], limit)
        run.step(critic_step)
        run.zero(actor_step, line=30)
        run.backward(networks["actor"], line=31)
        run.clip(networks["actor"], limit, line=32)
        run.step(actor_step, line=33)
    return run


@pytest.mark.parametrize(("size", "severity"), [(0.5, "warning"), (5.0, "error")])
def test_clip_of_the_other_network_before_a_step(size, severity):
    run = actor_and_critic("actor", size=size, steps=12)
    (found,) = run.said_by("GS411")
    assert (found.severity, found.location.line) == (severity, CLIP)
    assert [position.line for position in found.related] == [STEP]
    assert "actor" in found.message
    assert not run.said_by("GS401")


@pytest.mark.parametrize("clipped", ["critic", None])
def test_clip_of_the_stepped_network_is_right(clipped):
    assert not actor_and_critic(clipped, steps=12).said_by("GS411")


@pytest.mark.parametrize(("right", "is_found"), [(1, True), (2, True), (3, False)])
def test_share_of_calls_before_the_step_of_another(right, is_found):
    run = actor_and_critic("actor", steps=20, right=right)
    assert bool(run.findings("GS411")) == is_found


def weights_and_choices(clipped, *, zeroed, steps=8):
    """Train two parts in turn by a loss of both; before the step of one, a part is clipped."""
    run = ClippedRun()
    parts = {"weights": run.model("net", 2), "choices": run.model("alphas", 2)}
    of_weights, of_choices = (run.optimizer(parts[name]) for name in ("weights", "choices"))
    for _ in range(steps):
        if zeroed:
            run.zero(of_choices, line=30)
        run.backward((*parts["weights"], *parts["choices"]), line=31)
        run.step(of_choices, line=33)
        run.zero(of_weights)
        run.backward((*parts["weights"], *parts["choices"]), size=5.0)
        for name in clipped:
            run.clip(parts[name], 1.0)
        run.step(of_weights)
    return run


def test_clip_of_gradients_that_are_zeroed_unused():
    found = weights_and_choices(["choices"], zeroed=True).said_by("GS411")
    assert [(one.severity, one.location.line) for one in found] == [("error", CLIP)]


@pytest.mark.parametrize("clipped", [["weights"], ["choices", "weights"]])
def test_clip_that_has_the_stepped_part_is_right(clipped):
    assert not weights_and_choices(clipped, zeroed=True).said_by("GS411")


def test_clip_of_gradients_that_their_owner_uses_later_is_no_clip_of_strangers():
    assert not weights_and_choices(["choices"], zeroed=False).said_by("GS411")
