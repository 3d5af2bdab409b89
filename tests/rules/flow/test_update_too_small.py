import pytest
import torch

import gradscope
from gradscope.rules.engine import judge
from tests.rules.optimizing import Net, inspected, verdict, with_stats


def recording_of(kind, **chosen):
    return inspected(lambda ps: kind(ps, lr=1e-3, **chosen)).recording


def with_ratio(recording, ratio):
    return with_stats(
        recording, weight_norm=1.0, update_norm=lambda s: None if s.update_norm is None else ratio
    )


@pytest.mark.parametrize(
    ("kind", "ratio", "severity"),
    [
        (torch.optim.SGD, 1.0001e-4, None),
        (torch.optim.SGD, 1e-4, None),
        (torch.optim.SGD, 0.9999e-4, "note"),
        (torch.optim.SGD, 1.0001e-7, "note"),
        (torch.optim.SGD, 0.9999e-7, "warning"),
        (torch.optim.AdamW, 1.0001e-7, None),
        (torch.optim.AdamW, 0.9999e-7, "warning"),
        (torch.optim.AdamW, 0.0, "warning"),
    ],
)
def test_limits(kind, ratio, severity):
    assert verdict(with_ratio(recording_of(kind), ratio), "GS109") == severity


@pytest.mark.parametrize(("ratio", "severity"), [(1.01e-5, None), (0.99e-5, "note")])
def test_momentum_counts(ratio, severity):
    recording = with_ratio(recording_of(torch.optim.SGD, momentum=0.9), ratio)
    assert verdict(recording, "GS109") == severity


@pytest.mark.parametrize("rate", [1e-3, 1e-5, 1e-6])
def test_rates_of_fine_tuning_are_left_alone(rate):
    report = inspected(lambda ps: torch.optim.AdamW(ps, lr=rate))
    assert verdict(report.recording, "GS109") is None


@pytest.mark.parametrize(
    ("factor", "reason"),
    [(0.0, "the learning rate is 0"), (1e-5, "a scheduler holds the learning rate")],
)
def test_warm_up_is_not_judged(factor, reason):
    def warming(parameters):
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: factor)
        return optimizer

    skipped = judge(inspected(warming).recording).skipped
    (why,) = [one.reason for one in skipped if one.rule == "GS109"]
    assert why.startswith(reason)


def test_half_precision_is_not_judged():
    model = Net().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    x = torch.randn(4, 6, dtype=torch.bfloat16)
    report = gradscope.inspect(model, x, lambda y: y.square().mean(), optimizer=optimizer)
    assert verdict(report.recording, "GS109") is None


def test_branch_that_is_damped_is_no_model_that_stands_still():
    recording = recording_of(torch.optim.AdamW)
    largest = max(s.parameter for s in recording.parameter_stats)
    recording = with_stats(
        recording,
        weight_norm=1.0,
        update_norm=lambda s: 1e-3 if s.parameter == largest - 1 else 1e-9,
    )
    assert verdict(recording, "GS109") is None
