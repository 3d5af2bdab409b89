import math

import pytest
import torch

from gradscope.rules.helpers.updates import rises
from tests.rules.inspecting import only
from tests.rules.optimizing import Net, inspected, verdict, with_losses, with_stats

RISING, FALLING = (1.0, 2.0, 3.0, 4.0), (1.0, 0.9, 0.8, 0.7)


def recording_of(kind):
    return inspected(lambda ps: kind(ps, lr=1e-3)).recording


def with_ratio(recording, ratio):
    return with_stats(
        recording, weight_norm=1.0, update_norm=lambda s: None if s.update_norm is None else ratio
    )


@pytest.mark.parametrize(
    ("kind", "ratio", "severity"),
    [
        (torch.optim.SGD, 0.0999, None),
        (torch.optim.SGD, 0.1, "warning"),
        (torch.optim.SGD, 0.2999, "warning"),
        (torch.optim.SGD, 0.3, "error"),
        (torch.optim.AdamW, 0.0999, None),
        (torch.optim.AdamW, 0.1, "note"),
        (torch.optim.AdamW, 0.3, "warning"),
        (torch.optim.AdamW, 0.999, "warning"),
        (torch.optim.AdamW, 1.0, "error"),
        (torch.optim.SGD, math.nan, None),
    ],
)
def test_limits(kind, ratio, severity):
    recording = with_losses(with_ratio(recording_of(kind), ratio), *RISING)
    assert verdict(recording, "GS108") == severity


@pytest.mark.parametrize(("ratio", "severity"), [(0.3, "note"), (0.1, None)])
def test_falling_loss_clears_all_but_a_note(ratio, severity):
    recording = with_losses(with_ratio(recording_of(torch.optim.SGD), ratio), *FALLING)
    assert verdict(recording, "GS108") == severity


def test_without_probing_steps_it_is_milder():
    report = inspected(lambda ps: torch.optim.SGD(ps, lr=1e-3), probe_steps=0)
    assert verdict(with_ratio(report.recording, 0.3), "GS108") == "warning"


@pytest.mark.parametrize(("ratio", "severity"), [(0.3, "error"), (0.1, "error"), (0.09, None)])
@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_loss_that_is_no_number_any_more_is_worse_than_one_that_rises(ratio, severity, broken):
    recording = with_ratio(recording_of(torch.optim.SGD), ratio)
    assert verdict(with_losses(recording, 1.0, 0.5, broken, broken), "GS108") == severity


def test_ratio_is_the_median_of_plain_torchs(monkeypatch):
    torch.manual_seed(0)
    model = Net()
    before = {name: p.detach().double().clone() for name, p in model.named_parameters()}
    report = inspected(lambda ps: torch.optim.SGD(ps, lr=200.0), model)
    finding = only(report.findings, "GS108")
    stats = {s.parameter: s for s in report.recording.parameter_stats if s.step == 0}
    ratios = sorted(
        200.0 * stats[p.index].gradient.norm / before[p.name].norm().item()
        for p in report.recording.parameters
        if len(p.shape.dims) == 2
    )
    assert dict(finding.evidence)["update_ratio"] == pytest.approx(ratios[1], rel=1e-5)


@pytest.mark.parametrize("rate", [1e-3, 1e-2])
def test_ordinary_rates_are_left_alone(rate):
    report = inspected(lambda ps: torch.optim.AdamW(ps, lr=rate))
    assert verdict(report.recording, "GS108") is None


def test_no_step_is_not_judged():
    recording = with_stats(recording_of(torch.optim.SGD), update_norm=None)
    assert verdict(recording, "GS108") is None


@pytest.mark.parametrize(
    ("losses", "rose"),
    [
        ([1.0, 10.0], False),
        ([1.0, 10.1], True),
        ([-1.0, -20.0], False),
        ([-1.0, 8.0], False),
        ([-1.0, 8.1], True),
        ([-1.0, -2.0, math.nan], True),
        ([math.nan, 1.0], False),
        ([], False),
    ],
)
def test_loss_below_zero_rises_by_its_size(losses, rose):
    assert rises(losses) is rose
