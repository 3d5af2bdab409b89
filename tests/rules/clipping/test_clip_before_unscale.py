import pytest

from tests.rules.clipping.clipped_run import CLIP, STEP, UNSCALE, trained


def scaled_loop(*, max_norm=1.0, scale=65536.0, unscale=False, scaled=None, grows=False, line=None):
    """Ten steps with a gradient scaler; the limit may be given for each scale."""
    run, weights, optimizer = trained()
    if line is not None:
        run.sources[CLIP] = line
    for _ in range(10):
        run.zero(optimizer)
        run.backward(weights, size=1.0 if unscale else scale, scaled=1)
        if unscale:
            run.event("unscale", UNSCALE, optimizer=optimizer)
        limit = max_norm(scale) if callable(max_norm) else max_norm
        run.clip(weights, limit, scaled=not unscale if scaled is None else scaled)
        run.event("scaler-step", STEP, optimizer=optimizer, skipped=0, found_inf=0)
        run.step(optimizer)
        after = 2 * scale if grows else scale
        run.event("scaler-update", STEP + 1, scale_before=scale, scale_after=after)
        scale = after
    return run


def test_clip_of_scaled_gradients_is_an_error_at_its_line():
    found = scaled_loop().found("GS403")
    assert (found.severity, found.location.line, found.count) == ("error", CLIP, 10)
    assert dict(found.evidence)["scale"] == 65536
    assert "multiplied by the loss scale (65,536)" in found.message
    assert "1.53e-5" in found.message


def test_clip_behind_unscale_is_right():
    assert not scaled_loop(unscale=True).findings("GS403")


def test_norm_that_is_only_logged_may_be_scaled():
    assert not scaled_loop(max_norm=float("inf")).findings("GS403")


def test_clip_that_never_cut_is_a_warning():
    assert scaled_loop(scale=16.0, max_norm=40.0).found("GS403").severity == "warning"


@pytest.mark.parametrize(("scale", "count"), [(1.0, 0), (3.9, 0), (4.0, 1)])
def test_small_scales_do_no_harm(scale, count):
    assert len(scaled_loop(scale=scale).findings("GS403")) == count


def test_limit_that_moves_with_the_scale_knows_of_it():
    found = scaled_loop(max_norm=lambda scale: 0.5 * scale, scale=64.0, grows=True)
    assert not found.findings("GS403")


def test_limit_of_the_size_of_the_scale_knows_of_it():
    assert not scaled_loop(max_norm=65536.0).findings("GS403")


def test_scale_that_grows_does_not_excuse_a_fixed_limit():
    assert scaled_loop(grows=True).found("GS403").severity == "error"


def test_value_clip_of_scaled_gradients_is_an_error():
    run, weights, optimizer = trained()
    for _ in range(5):
        run.zero(optimizer)
        run.backward(weights, size=65536.0, scaled=1)
        run.clip(weights, 0.5, by_value=True, scaled=1)
        run.step(optimizer)
    assert run.found("GS403").severity == "error"
