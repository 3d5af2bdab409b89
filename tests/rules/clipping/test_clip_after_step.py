import pytest

from tests.rules.clipping.clipped_run import BACKWARD, CLIP, STEP, healthy_loop, trained


def late_loop(steps=10, max_norm=1.0, size=1.0):
    run, weights, optimizer = trained()
    for _ in range(steps):
        run.zero(optimizer)
        run.backward(weights, size=size)
        run.step(optimizer)
        run.clip(weights, max_norm)
    return run


def test_clip_behind_the_step_is_an_error_at_its_line():
    found = late_loop().found("GS401")
    assert (found.severity, found.location.line, found.count) == ("error", CLIP, 10)
    assert "clip_grad_norm_(max_norm=1) comes after the step" in found.message
    assert [position.line for position in found.related] == [STEP]
    assert dict(found.evidence)["largest_norm"] == pytest.approx(2.0)


def test_clip_between_backward_and_step_is_right():
    assert not healthy_loop().findings("GS401")


def test_late_clip_that_never_had_anything_to_cut_is_a_warning():
    assert late_loop(max_norm=2.0).found("GS401").severity == "warning"
    assert late_loop(max_norm=1.99).found("GS401").severity == "error"


@pytest.mark.parametrize("max_norm", [float("inf"), 1e12])
def test_norm_that_is_only_logged_behind_the_step_is_right(max_norm):
    assert not late_loop(max_norm=max_norm).findings("GS401")


def test_late_value_clip_is_an_error():
    run, weights, optimizer = trained()
    for _ in range(5):
        run.backward(weights)
        run.step(optimizer)
        run.clip(weights, 0.1, by_value=True)
        run.zero(optimizer)
    found = run.found("GS401")
    assert found.severity == "error"
    assert "clip_grad_value_(clip_value=0.1)" in found.message


def test_share_of_late_calls_decides():
    """A phase at the end that clips once more after its last step is no mistake of the loop."""

    def loop(late):
        run, weights, optimizer = trained()
        for step in range(20):
            run.zero(optimizer)
            run.backward(weights)
            if step >= late:
                run.clip(weights)
            run.step(optimizer)
            if step < late:
                run.clip(weights)
        return run

    assert not loop(17).findings("GS401")
    assert loop(18).found("GS401").count == 18


def test_clip_of_two_networks_of_which_one_has_just_stepped_is_right():
    """A GAN that clips both networks before each step."""
    run, generator, _ = trained()
    critic = run.model("critic", 3)
    optimizers = (run.optimizer(generator, "Adam"), run.optimizer(critic, "Adam"))
    for _ in range(8):
        run.zero(optimizers[1])
        run.backward(critic)
        run.clip((*generator, *critic))
        run.step(optimizers[1])
        run.zero(optimizers[0])
        run.backward((*generator, *critic), line=BACKWARD + 10)
        run.clip((*generator, *critic))
        run.step(optimizers[0])
        run.zero(optimizers[1])
    assert not [one for one in run.findings("GS401") if one.severity == "error"]


def test_step_that_was_skipped_leaves_its_gradients_for_the_clip():
    run, weights, optimizer = trained()
    for step in range(10):
        run.zero(optimizer)
        run.backward(weights)
        run.clip(weights)
        run.event("scaler-step", STEP, optimizer=optimizer, skipped=step < 5)
        if step >= 5:
            run.step(optimizer)
    assert not run.findings("GS401")
