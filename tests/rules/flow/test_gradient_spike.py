import math
from types import SimpleNamespace

import pytest

from gradscope.rules.engine import judge
from gradscope.rules.helpers.spikes import Limits, unmeasured_jump
from tests.rules.clipping.clipped_run import BACKWARD, ClippedRun

CALM = 1.0


def train(sizes, *, max_norm=None, rates=None, losses=None, parameters=4):
    """Make a step for each size: of each parameter's gradient, or of the parameters' by name."""
    run = ClippedRun()
    weights = run.model("model", parameters)
    optimizer = run.optimizer(weights)
    for step, size in enumerate(sizes):
        run.zero(optimizer)
        loss = 1.0 if losses is None else losses[step]
        if isinstance(size, dict):
            for weight in weights:
                run.backward((weight,), size=size.get(weight, CALM), loss=loss)
        else:
            run.backward(weights, size=size, loss=loss)
        if max_norm is not None:
            run.clip(weights, max_norm)
        run.step(optimizer, **({} if rates is None else {"lr": rates[step]}))
    return run


def said(run):
    return [one for one in judge(run.recording()).findings if one.rule == "GS107"]


def calm(steps):
    """Norms as of training: they vary by a few tenths."""
    return [CALM * (1 + 0.2 * math.sin(7.3 * step)) for step in range(steps)]


def with_spike(times, at=40, steps=60, base=None):
    sizes = calm(steps) if base is None else list(base)
    sizes[at] = times * CALM
    return sizes


def test_spike_is_a_warning_at_the_backward_of_its_step():
    losses = [1.0] * 40 + [30.0] + [3.0] * 19
    (found,) = said(train(with_spike(100), losses=losses))
    assert (found.severity, found.step, found.count) == ("warning", 40, 1)
    assert found.location.line == BACKWARD
    assert "step 40" in found.message and "from 1 to 3" in found.message
    assert dict(found.evidence)["times_usual"] == pytest.approx(100, rel=0.1)


@pytest.mark.parametrize(("times", "count"), [(9.0, 0), (12.0, 1)])
def test_factor_decides(times, count):
    assert len(said(train(with_spike(times)))) == count


def test_parameters_that_carry_it_are_named():
    sizes = [{}] * 60
    sizes[45] = {2: 500.0}
    (found,) = said(train(sizes))
    assert found.parameters == ("model.weight2",)


@pytest.mark.parametrize("at", [0, 5, 19])
def test_start_of_training_is_not_judged(at):
    assert not said(train(with_spike(100, at=at)))


def test_first_norms_that_fall_fast_are_right():
    assert not said(train([100.0 / (1 + step) ** 2 + 1 for step in range(60)]))


def test_spike_to_where_the_run_began_is_right():
    """Late in training the loss is near zero; one example that is still wrong is no danger."""
    sizes = [10.0 * 0.8**step + 1e-3 for step in range(60)]
    sizes[55] = 0.5
    assert not said(train(sizes))


def test_spike_below_where_the_run_began_is_one_if_the_loss_rises():
    sizes = [10.0 * 0.8 ** min(step, 30) for step in range(160)]
    sizes[150] = 5.0
    losses = [4.0] * 20 + [1.0] * 131 + [1.3] * 9
    assert said(train(sizes, losses=losses))
    assert not said(train(sizes))


def test_norms_of_heavy_tails_are_right():
    """One batch in ten has a rare example, whose gradient is some twenty times larger."""
    sizes = [(20.0 + step % 7 if step % 10 == 3 else 1.0) for step in range(200)]
    assert not said(train(sizes))


def test_norms_that_vary_by_orders_of_magnitude_are_right():
    sizes = [10.0 ** math.sin(2.1 * step) for step in range(200)]
    sizes[150] = 25.0
    assert not said(train(sizes))


def test_spike_that_the_clip_caught_is_a_note():
    (found,) = said(train(with_spike(100), max_norm=3.0))
    assert found.severity == "note"
    assert "but was clipped" in found.message
    assert dict(found.evidence)["norm"] == pytest.approx(200)


def test_clip_that_is_too_wide_catches_nothing():
    (found,) = said(train(with_spike(100), max_norm=150.0))
    assert found.severity == "warning"


def test_tight_clip_that_measures_all_along_hides_no_spike():
    """Every step is cut to the same norm: the optimizer sees a level one."""
    (found,) = said(train(with_spike(100), max_norm=0.01))
    assert found.severity == "note"


def test_rise_of_the_learning_rate_is_given_time():
    """A warm restart: the first steps at the high rate are rough."""
    rates = [0.1] * 40 + [1.0] * 20
    assert not said(train(with_spike(50, at=41), rates=rates))
    assert said(train(with_spike(50, at=41), rates=[0.1] * 60))


def test_slow_warm_up_is_judged():
    rates = [1e-3 * 1.05**step for step in range(60)]
    assert said(train(with_spike(50), rates=rates))


def test_spikes_that_come_all_the_time_are_a_note():
    """Rewards that are rare, as in reinforcement learning."""
    sizes = calm(100)
    for step in range(20, 100, 10):
        sizes[step] = 50.0
    (found,) = said(train(sizes))
    assert found.severity == "note"
    sizes[30:] = calm(70)
    (found,) = said(train(sizes))
    assert found.severity == "warning"


@pytest.mark.parametrize("size", [math.nan, math.inf, 0.0])
def test_steps_without_a_finite_norm_are_passed_over(size):
    assert not said(train(with_spike(size)))


def test_two_optimizers_have_levels_of_their_own():
    run = ClippedRun()
    generator, critic = run.model("generator", 3), run.model("critic", 4)
    first, second = run.optimizer(generator, "Adam"), run.optimizer(critic, "Adam")
    for _ in range(60):
        run.zero(second)
        run.backward(critic, size=100.0)
        run.step(second)
        run.zero(first)
        run.backward(generator, size=1.0)
        run.step(first)
    assert not said(run)


def test_short_runs_are_not_judged():
    assert not said(train([1.0] * 15 + [1000.0]))


LIMITS = Limits(factor=10.0, beyond=2.0, deviations=6.0, window=128, least_history=20, together=4.0)


def windows_of(losses, *, norms_until=30, rates=None):
    """Steps of which only the first have a norm."""
    return [
        SimpleNamespace(
            step=SimpleNamespace(
                norm=1.0 if position < norms_until else None,
                lr=0.1 if rates is None else rates[position],
            ),
            passes=[SimpleNamespace(loss=loss)],
        )
        for position, loss in enumerate(losses)
    ]


def with_loss(loss, *, after=1.0, at=40, first=1.0):
    return [first] * at + [loss] + [after] * 10


@pytest.mark.parametrize(("loss", "is_one"), [(99.0, False), (100.0, False), (101.0, True)])
def test_square_of_the_factor_decides_on_a_loss_without_a_norm(loss, is_one):
    found = unmeasured_jump(windows_of(with_loss(loss)), LIMITS)
    assert found == ((40, pytest.approx(loss)) if is_one else None)


@pytest.mark.parametrize(
    "losses",
    [
        with_loss(1e4, after=2e3),  # the weights stay driven off
        with_loss(1e4, at=15),  # too early to be judged
        with_loss(1e4, at=29),  # measured: its norm is judged
        with_loss(1e4, first=-1.0),  # as of a policy: no size to compare with
        with_loss(1e-5, first=1e-9, after=1e-9),  # converged
        with_loss(math.nan),
        [1.0] * 40 + [1e4],  # nothing is known of what follows
    ],
)
def test_other_losses_are_no_spikes(losses):
    assert unmeasured_jump(windows_of(losses), LIMITS) is None


def test_loss_after_a_raised_learning_rate_is_not_judged():
    rates = [0.1] * 35 + [0.2] * 16
    assert unmeasured_jump(windows_of(with_loss(1e4), rates=rates), LIMITS) is None
