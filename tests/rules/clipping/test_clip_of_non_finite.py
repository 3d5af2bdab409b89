import math

import pytest

from tests.rules.clipping.clipped_run import BACKWARD, CLIP, STEP, healthy_loop, trained

NAN, INFINITY = math.nan, math.inf


def broken_loop(size=NAN, *, at=5, clips=True, **numbers):
    """Ten steps, of which one gets a gradient of another kind; what is lost stays lost."""
    run, weights, optimizer = trained()
    for step in range(10):
        run.zero(optimizer)
        is_lost = math.isnan(size) and step > at
        run.backward(weights[1:], size=NAN if is_lost else 1.0)
        run.backward(weights[:1], size=size if step >= at else 1.0)
        if clips:
            run.clip(weights)
        run.step(optimizer, **(numbers if step >= at else {}))
    return run


def test_nan_norm_is_an_error_at_the_clip_of_the_first_such_step():
    found = broken_loop().found("GS408")
    assert (found.severity, found.location.line, found.step) == ("error", CLIP, 5)
    assert "NaN in step 5" in found.message
    assert "makes all 4 gradients NaN" in found.message
    assert [position.line for position in found.related] == [BACKWARD]


def test_infinite_norm_spares_no_gradient():
    found = broken_loop(INFINITY).found("GS408")
    assert "infinite in step 5" in found.message


def test_norm_that_overflows_makes_all_gradients_zero():
    run, weights, optimizer = trained()
    for step in range(4):
        run.zero(optimizer)
        run.backward(weights)
        run.clip(weights, **({"norm": INFINITY} if step else {}))
        run.step(optimizer, **({"norm": 0.0} if step else {}))
    assert "makes every gradient zero" in run.found("GS408").message


def test_finite_norms_are_right():
    assert not healthy_loop(size=1e30).findings("GS408")


def test_nan_without_a_clip_is_not_the_clips():
    assert broken_loop(clips=False).findings("GS103")


def test_step_that_the_scaler_leaves_out_is_right():
    run, weights, optimizer = trained()
    for step in range(10):
        run.zero(optimizer)
        run.backward(weights, size=INFINITY if step == 3 else 1.0)
        run.clip(weights)
        run.event("scaler-step", STEP, optimizer=optimizer, skipped=step == 3)
        if step != 3:
            run.step(optimizer)
    assert not run.findings("GS408")


def test_step_that_the_script_leaves_out_is_right():
    """`if not torch.isfinite(norm): optimizer.zero_grad(); continue`."""
    run, weights, optimizer = trained()
    for step in range(10):
        run.backward(weights, size=NAN if step == 3 else 1.0)
        run.clip(weights)
        if step != 3:
            run.step(optimizer)
        run.zero(optimizer)
    assert not run.findings("GS408")


@pytest.mark.parametrize("max_norm", [INFINITY])
def test_norm_that_is_only_measured_spreads_nothing(max_norm):
    run, weights, optimizer = trained()
    for step in range(5):
        run.zero(optimizer)
        run.backward(weights[:1], size=NAN if step > 2 else 1.0)
        run.clip(weights, max_norm)
        run.step(optimizer)
    assert run.findings("GS103")
