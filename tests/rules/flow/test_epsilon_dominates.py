import dataclasses

import pytest
import torch
from torch import nn

from gradscope.recording.records import GradientStat
from gradscope.rules.flow.epsilon_dominates import _below
from tests.rules.optimizing import inspected, verdict, with_losses, with_stats

EPSILON = 2.0**-20
STAT = GradientStat(
    numel=100,
    norm=1.0,
    absolute_maximum=1.0,
    zero_share=0.0,
    nonfinite=0,
    sampled=False,
    lowest_exponent=-21,
    magnitudes=(5, 5),
)


def with_share(share: float, **changes):
    """A gradient of which this share is below `EPSILON`."""
    below = round(1000 * share)
    stat = dataclasses.replace(STAT, magnitudes=(below, 1000 - below), **changes)
    return lambda s: None if s.gradient is None else stat


@pytest.fixture(scope="module")
def recording():
    torch.manual_seed(0)
    return inspected(lambda ps: torch.optim.AdamW(ps, lr=1e-3, eps=EPSILON)).recording


def test_share_is_read_from_the_octaves():
    assert _below(STAT, EPSILON) == (0.5, 100)
    assert _below(STAT, 2.0**-21) == (0.0, 100)
    assert _below(STAT, 2.0**-19) == (1.0, 100)
    assert _below(STAT, 2.0**-20.5) == (pytest.approx(0.25), 100)


def test_exact_zeros_do_not_count():
    assert _below(dataclasses.replace(STAT, zero_share=0.9), EPSILON)[1] == pytest.approx(10)
    assert _below(dataclasses.replace(STAT, norm=0.0), EPSILON) == (0.0, 0.0)
    assert _below(dataclasses.replace(STAT, nonfinite=1), EPSILON) == (0.0, 0.0)


def test_numbers_too_small_to_be_normal_are_below():
    tiny = dataclasses.replace(STAT, norm=1e-39, absolute_maximum=1e-40, magnitudes=())
    assert _below(tiny, 1e-8) == (1.0, 100)


@pytest.mark.parametrize(
    ("share", "severity"),
    [(0.499, None), (0.5, "warning"), (0.899, "warning"), (0.9, "error"), (1.0, "error")],
)
def test_limits(recording, share, severity):
    changed = with_epsilon(with_stats(recording, gradient=with_share(share)))
    assert verdict(with_losses(changed, 1.0), "GS110") == severity


def with_epsilon(recording, common: bool = True):
    """Let the epsilon pass for one that nobody chose."""
    if not common:
        return recording
    scaled = []
    for record in recording.evidence:
        groups = getattr(record, "groups", None)
        if groups is not None:
            groups = tuple(dataclasses.replace(g, epsilon=2.0**-27) for g in groups)
            record = dataclasses.replace(record, groups=groups)
        scaled.append(record)
    stats = tuple(
        s
        if s.gradient is None
        else dataclasses.replace(s, gradient=dataclasses.replace(s.gradient, lowest_exponent=-28))
        for s in recording.parameter_stats
    )
    return dataclasses.replace(recording, evidence=tuple(scaled), parameter_stats=stats)


def test_converged_loss_is_no_error(recording):
    changed = with_epsilon(with_stats(recording, gradient=with_share(1.0)))
    assert verdict(with_losses(changed, 0.9e-3), "GS110") == "warning"
    assert verdict(with_losses(changed, 1e-3), "GS110") == "error"


def test_chosen_epsilon_is_a_note(recording):
    assert verdict(with_stats(recording, gradient=with_share(1.0)), "GS110") == "note"


def test_other_optimizers_have_no_such_epsilon():
    loss = lambda o, t: 1e-12 * nn.functional.cross_entropy(o, t)  # noqa: E731
    report = inspected(lambda ps: torch.optim.SGD(ps, 0.1), loss=loss)
    assert verdict(report.recording, "GS110") is None


@pytest.mark.parametrize(("scale", "severity"), [(1.0, None), (1e-12, "warning")])
def test_scaled_loss(scale, severity):
    loss = lambda o, t: scale * nn.functional.cross_entropy(o, t)  # noqa: E731
    report = inspected(torch.optim.Adam, loss=loss)
    assert verdict(report.recording, "GS110") == severity


@pytest.mark.parametrize(("ratio", "severity"), [(0.9e-4, "warning"), (1e-4, "note")])
def test_chosen_epsilon_that_stops_the_weights_is_a_warning(recording, ratio, severity):
    changed = with_stats(
        recording,
        gradient=with_share(1.0),
        update_norm=lambda s: None if s.update_norm is None else ratio * s.weight_norm,
    )
    assert verdict(changed, "GS110") == severity


def test_chosen_epsilon_below_most_of_the_gradient_stays_a_note(recording):
    changed = with_stats(
        recording,
        gradient=with_share(0.89),
        update_norm=lambda s: None if s.update_norm is None else 1e-6 * s.weight_norm,
    )
    assert verdict(changed, "GS110") == "note"
