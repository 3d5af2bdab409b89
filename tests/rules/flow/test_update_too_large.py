import math

import pytest
import torch

from gradscope.rules.helpers.updates import rises, rises_beyond_noise, stays_up
from tests.rules.inspecting import only
from tests.rules.optimizing import Net, inspected, verdict, with_losses, with_stats
from tests.rules.watching import findings_of

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


def losses_of_small_batches(seed, batch, decay=0.8, count=26):
    """Squared errors of standard normal residuals, which shrink from step to step."""
    generator = torch.Generator().manual_seed(seed)
    residuals = torch.randn(count, batch, generator=generator)
    return (residuals.square().mean(1) * decay ** torch.arange(count)).tolist()


@pytest.mark.parametrize(("batch", "tenfold", "at_once"), [(1, 50, 2), (3, 5, 0)])
def test_batches_that_vary_are_no_rise(batch, tenfold, at_once):
    draws = [losses_of_small_batches(seed, batch) for seed in range(200)]
    assert sum(rises(losses[5:]) for losses in draws) >= tenfold
    beyond = [rises_beyond_noise(losses[5:], losses[:5]) for losses in draws]
    assert sum(beyond) == 0
    assert sum(rises_beyond_noise(losses, []) for losses in draws) <= at_once


@pytest.mark.parametrize(("batch", "factor"), [(1, 10.0), (3, 2.0), (32, 1.3)])
def test_growth_from_step_to_step_is_a_rise_in_spite_of_noise(batch, factor):
    draws = [losses_of_small_batches(seed, batch, decay=factor) for seed in range(50)]
    assert sum(rises_beyond_noise(losses[5:], losses[:5]) for losses in draws) >= 45


@pytest.mark.parametrize(
    ("later", "rose"),
    [
        ([2e5] + [0.693] * 11, True),  # every unit died
        ([30.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4], True),  # a jump of a smooth loss
        ([6.9, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4], False),
        ([30.0, 20.0, 45.0, 60.0, 35.0, 40.0, 30.0, 70.0], True),  # high from there on
        ([20.0, 0.2, 4.0, 0.1, 7.0, 0.3, 5.0, 0.1], False),  # varies as much as it rises
        ([20.0], True),  # too few losses to tell how much they vary
        ([0.2, math.nan], True),
    ],
)
def test_rise_is_compared_with_the_spread(later, rose):
    assert rises_beyond_noise([0.7, *later], []) is rose


@pytest.mark.parametrize(
    ("before", "rose"),
    [([1.0, 0.9, 1.1, 0.8, 1.2], False), ([0.02] * 5, True), ([], True), ([math.nan], True)],
)
def test_rise_starts_from_the_usual_loss_of_the_steps_before(before, rose):
    assert rises_beyond_noise([0.02, 1.0, 0.9, 0.8, 0.9, 1.0, 0.8], before) is rose


def noisy(*usual: float, spread: float = 0.02) -> list[float]:
    torch.manual_seed(0)
    return [one * math.exp(spread * float(torch.randn(()))) for one in usual]


@pytest.mark.parametrize(
    ("losses", "stays"),
    [
        pytest.param([2.3, *noisy(*[6.0] * 20, *[2.4] * 40)], True, id="jumps, back at chance"),
        pytest.param([3.0, *noisy(*[9.0] * 20, *[5.0] * 40, spread=0.15)], True, id="stays high"),
        pytest.param([2.3, *noisy(*[6.0] * 20, *[2.0] * 40)], False, id="comes down"),
        pytest.param([2.3, *noisy(*[3.3] * 20, *[2.4] * 40)], False, id="jumps by less than half"),
        pytest.param([2.3, *noisy(*[2.4] * 60)], False, id="does not jump"),
        pytest.param([2.3, *noisy(*[2.4] * 60, spread=0.6)], False, id="jumps by chance"),
        pytest.param([2.3, *noisy(*[6.0] * 20)], False, id="too short"),
        pytest.param([-2.3, *noisy(*[6.0] * 60)], False, id="below zero"),
        pytest.param(
            [2.3, *noisy(*[6.0] * 20, *[1.0] * 30, *[2.4] * 40)], False, id="learned once"
        ),
    ],
)
def test_a_loss_that_is_driven_up_and_never_comes_down(losses, stays):
    assert stays_up(losses) is stays


def classifier_run(rate: float, folder, *, parts=1):
    def loop():
        torch.manual_seed(0)
        patterns = torch.randn(5, 1, 12, 12)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 3),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(16 * 25, 64),
            torch.nn.ReLU(),
            torch.nn.Linear(64, 5),
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        for _ in range(60):
            optimizer.zero_grad()
            for _ in range(parts):
                y = torch.randint(0, 5, (32 // parts,))
                x = patterns[y] + torch.randn(32 // parts, 1, 12, 12)
                (torch.nn.functional.cross_entropy(model(x), y) / parts).backward()
            optimizer.step()

    return [one for one in findings_of(loop, folder) if one.rule == "GS108"]


@pytest.mark.parametrize("parts", [1, 2])
def test_a_run_that_its_first_steps_ruin_is_an_error(tmp_path, parts):
    (finding,) = classifier_run(2.0, tmp_path, parts=parts)
    assert finding.severity == "error"


def test_the_same_run_with_a_fair_rate_is_healthy(tmp_path):
    assert not classifier_run(0.05, tmp_path)
