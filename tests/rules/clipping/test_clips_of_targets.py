"""The rules on how hard clips cut also judge what was asked for of a target."""

import pytest
import torch
from torch import nn

from gradscope.rules.engine import judge
from gradscope.rules.settings import Settings
from gradscope.target.options import ClipOptions
from tests.nightly import some_on_push
from tests.training.looping import watched

CLIPPING = Settings(select=("clipping",))


def judged(steps=25, adam=False, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
    batch = torch.randn(32, 8) * torch.logspace(-1, 1, 8), torch.randint(3, (32,))
    optimizer = (torch.optim.Adam if adam else torch.optim.SGD)(model.parameters(), lr=1e-3)

    def loss_fn(model, batch):
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    return judge(
        watched(
            model, None, loss_fn, optimizer, batch=batch, steps=steps,
            clipping=ClipOptions(**options),
        ),
        CLIPPING,
    )  # fmt: skip


def found(verdict):
    return [(one.rule, one.severity) for one in verdict.findings]


def test_limit_far_below_the_norm():
    assert found(judged(max_norm=1e-4)) == [("GS405", "warning")]
    assert found(judged(max_norm=1e-6, adam=True)) == [("GS405", "note")]


def test_limit_far_above_the_norm():
    assert found(judged(max_norm=1e4)) == [("GS406", "note")]


def test_limit_of_the_size_of_the_norm():
    assert found(judged(max_norm=2.0)) == []


@pytest.mark.parametrize(
    ("options", "severity"),
    some_on_push(
        [
            ({"value": 1e-4}, "warning"),
            ({"max_norm": 0.01, "per_tensor": True}, "warning"),
            ({"adaptive_ratio": 1e-3}, "note"),
        ],
        {0, 2},
    ),
)
def test_clip_that_turns_the_gradient(options, severity):
    assert ("GS407", severity) in found(judged(**options))


@pytest.mark.parametrize(
    "options",
    some_on_push(
        [{"value": 1e3}, {"max_norm": 1e3, "per_tensor": True}, {"adaptive_ratio": 1e3}], {0, 1}
    ),
)
def test_clip_that_cuts_nothing_turns_nothing(options):
    assert "GS407" not in [rule for rule, _ in found(judged(**options))]


def test_methods_that_nobody_asked_for_are_compared_and_not_judged():
    verdict = judged()
    assert found(verdict) == []
    assert not {"GS405", "GS406", "GS407"} & set(verdict.ran)


def test_few_steps_are_not_judged():
    assert found(judged(steps=3, max_norm=1e-4)) == []
