"""GS345, judged from loops as users write them."""

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    OneCycleLR,
    SequentialLR,
)

from tests.nightly import some_on_push
from tests.rules import watching


def decays(sgd):
    return LambdaLR(sgd, lambda step: 0.99**step)


def trained(tmp_path, schedule, rate, *, before=False, steps=40):
    """Train with a schedule, and write rates by hand before or after each of its steps."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(16, 4)

    def train():
        scheduler = schedule(sgd)
        for step in range(steps):
            loss = model(batch).square().mean()
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            for moment in (True, False):
                written = rate(step, sgd.param_groups[0]["lr"]) if moment == before else None
                if written is not None:
                    sgd.param_groups[0]["lr"] = written
                if moment:
                    scheduler.step()

    return [one for one in watching.findings_of(train, tmp_path) if one.rule == "GS345"]


def rising(step, _):
    return 0.01 * min(1.0, (step + 1) / 10)


def warm_up(length):
    return lambda step, _: 0.01 * (step + 1) / length if step < length else None


LOST = {
    "a schedule": ((decays, rising), {}, 39),
    "one that goes on from the rate": ((lambda sgd: CosineAnnealingLR(sgd, 40), rising), {}, 39),
    "a schedule in the fewest steps": ((decays, rising), {"steps": 21}, 20),
    "a warm-up": ((decays, warm_up(10)), {"before": True}, 9),
    "a warm-up of one cycle": (
        (lambda sgd: OneCycleLR(sgd, 0.1, total_steps=50), warm_up(10)),
        {"before": True},
        10,
    ),
    "a warm-up of the fewest steps": ((decays, warm_up(5)), {"before": True}, 5),
}


@pytest.mark.parametrize("name", some_on_push(LOST, 2))
def test_a_rate_that_no_step_uses_is_found(tmp_path, name):
    arguments, options, count = LOST[name]
    (found,) = trained(tmp_path, *arguments, **options)
    assert found.severity == "warning"
    assert found.location.source == "scheduler.step()"
    assert dict(found.evidence)["steps_lost"] >= count


def stepped(sgd):
    return SequentialLR(sgd, [LinearLR(sgd, 0.1, total_iters=9), CosineAnnealingLR(sgd, 40)], [9])


FINE = {
    "no rate by hand": ((decays, lambda step, rate: None), {}),
    "a warm-up by schedules": ((stepped, lambda step, rate: None), {}),
    "a warm-up that ends": ((decays, warm_up(10)), {}),
    "too few steps": ((decays, rising), {"steps": 20}),
    "too few rates by hand": ((decays, warm_up(4)), {"before": True}),
    "a constant factor": ((decays, lambda step, rate: 0.5 * rate), {}),
    "a lower bound": ((decays, lambda step, rate: max(rate, 0.008)), {}),
    "still warming up": ((decays, warm_up(100)), {}),
    "a schedule that never changes": (
        (lambda sgd: LambdaLR(sgd, lambda step: 1.0), lambda step, rate: 0.01 * 0.9**step),
        {},
    ),
    "restarts that the schedule goes on from": (
        (lambda sgd: ExponentialLR(sgd, 0.9), lambda step, rate: 0.01 if step % 5 == 0 else None),
        {"before": True},
    ),
}


@pytest.mark.parametrize("name", some_on_push(FINE, 3))
def test_rates_that_steps_use_are_fine(tmp_path, name):
    arguments, options = FINE[name]
    assert not trained(tmp_path, *arguments, **options)
