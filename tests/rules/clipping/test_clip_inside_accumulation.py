import pytest

from tests.rules.clipping.clipped_run import BACKWARD, CLIP, healthy_loop, trained


def accumulation(*, inside=True, passes=4, max_norm=0.1, every=1, steps=10):
    run, weights, optimizer = trained()
    for step in range(steps):
        run.zero(optimizer)
        for _ in range(passes):
            run.backward(weights, divided=passes)
            if inside and step % every == 0:
                run.clip(weights, max_norm)
        if not inside or step % every:
            run.clip(weights, max_norm)
        run.step(optimizer)
    return run


def test_clip_of_every_micro_batch_is_a_warning_at_its_line():
    found = accumulation().found("GS409")
    assert (found.severity, found.location.line, found.count) == ("warning", CLIP, 10)
    assert "4 times before each step" in found.message
    assert [position.line for position in found.related] == [BACKWARD]


def test_clip_behind_the_last_micro_batch_is_right():
    assert not accumulation(inside=False).findings("GS409")
    assert not healthy_loop().findings("GS409")


def test_clip_that_never_had_anything_to_cut_is_a_note():
    """Four passes of norm 1 on four parameters: at most 8."""
    assert accumulation(max_norm=8.0).found("GS409").severity == "note"
    assert accumulation(max_norm=7.9).found("GS409").severity == "warning"


def test_norm_that_is_logged_for_every_micro_batch_is_right():
    assert not accumulation(max_norm=float("inf")).findings("GS409")


@pytest.mark.parametrize(("every", "count"), [(2, 1), (3, 0)])
def test_share_of_steps_decides(every, count):
    assert len(accumulation(every=every, steps=12).findings("GS409")) == count


def test_clip_of_examples_that_are_kept_elsewhere_is_right():
    """Differential privacy by hand: each example's clipped gradient is added to another sum."""
    run, weights, optimizer = trained()
    for _ in range(5):
        for _ in range(4):
            run.zero(optimizer)
            run.backward(weights)
            run.clip(weights, 0.1)
        run.step(optimizer)
    assert not run.said_by("GS409")


def test_clips_of_parts_behind_one_backward_are_right():
    run, weights, optimizer = trained()
    for _ in range(5):
        run.zero(optimizer)
        run.backward(weights)
        for weight in weights:
            run.clip((weight,), 0.1)
        run.step(optimizer)
    assert not run.findings("GS409")


def test_closure_that_is_called_many_times_is_right():
    """LBFGS zeroes, goes backward and clips in its closure."""
    run, weights, optimizer = trained(class_name="LBFGS")
    for _ in range(3):
        for _ in range(5):
            run.zero(optimizer)
            run.backward(weights)
            run.clip(weights, 0.1)
        run.step(optimizer)
    assert not run.said_by("GS409")
