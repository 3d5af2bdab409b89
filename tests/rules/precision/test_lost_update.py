from dataclasses import replace

import pytest

from gradscope.recording.evidence.training import RoundedUpdate
from gradscope.recording.records import Shape
from gradscope.rules.engine import judge
from tests.rules.clipping.clipped_run import trained
from tests.rules.watching import findings_of_script

OPTIMIZER = 3
"""The line that makes it."""


def said(shares, *, class_name="AdamW", rates=None, dtype="bfloat16"):
    """Judge a run by the share of elements that each step leaves as they were."""
    run, weights, optimizer = trained(class_name=class_name)
    records = []
    for step, share in enumerate(shares):
        run.zero(optimizer)
        run.backward(weights)
        run.step(optimizer, **({} if rates is None else {"lr": rates[step]}))
        records += [
            RoundedUpdate(
                step=step, optimizer=0, parameter=weight, moving=1000, unchanged=int(1000 * share)
            )
            for weight in weights
        ]
    recording = run.recording()
    shape = Shape(dims=(4,), dtype=dtype)
    recording = replace(
        recording,
        parameters=tuple(replace(one, shape=shape) for one in recording.parameters),
        evidence=(*recording.evidence, *records),
    )
    return [one for one in judge(recording).findings if one.rule == "GS603"]


def test_updates_that_are_rounded_away_are_an_error_at_the_optimizer():
    (found,) = said([0.9] * 5)
    assert (found.severity, found.location.line) == ("error", OPTIMIZER)
    assert "90% of the elements" in found.message and "bfloat16" in found.message
    assert len(found.parameters) == 4
    assert dict(found.evidence)["smallest_change_kept"] == pytest.approx(2**-8)


@pytest.mark.parametrize(
    ("share", "severity"), [(0.49, None), (0.5, "warning"), (0.79, "warning"), (0.8, "error")]
)
def test_levels(share, severity):
    found = said([share] * 3)
    assert [one.severity for one in found] == ([] if severity is None else [severity])


def test_float16_is_named():
    (found,) = said([0.9] * 5, dtype="float16")
    assert "float16" in found.message


def test_warm_up_from_a_rate_of_zero_is_right():
    """The first steps change nothing, as they are not meant to."""
    rates = [0.0, 1e-6, 2e-6, 1e-3, 1e-3]
    assert not said([1.0, 1.0, 0.9, 0.2, 0.2], rates=rates)


def test_rate_of_zero_throughout_is_right():
    assert not said([1.0] * 3, rates=[0.0] * 3)


@pytest.mark.parametrize("class_name", ["AdamWBf16", "AnyPrecisionAdamW", "StableAdamW"])
def test_optimizers_that_may_round_stochastically_are_not_judged(class_name):
    assert not said([0.9] * 5, class_name=class_name)


def test_the_median_over_the_steps_counts():
    assert not said([0.9, 0.2, 0.2])
    assert said([0.2, 0.9, 0.9])


def test_gradients_that_are_zero_do_not_count():
    """Rows of an embedding that no batch has touched stay as they are."""
    assert not said([0.0] * 3)


TRAINING = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
CASTS
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)  # made
for step in range(6):
    x = torch.randn(32, 8)
    loss = model(x.bfloat16()).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("casts", "mark"),
    [
        ("model.to(torch.bfloat16)  # here", "# made"),
        ("torch.set_num_threads(1)\nmodel = model.to(dtype=torch.bfloat16)  # here", "# here"),
    ],
)
def test_it_points_to_the_only_line_that_may_make_the_weights_short(tmp_path, casts, mark):
    text = TRAINING.replace("CASTS", casts)
    if mark == "# here":
        text = text.replace("x.bfloat16()", "x.to(next(model.parameters()).dtype)")
    script = tmp_path / "train.py"
    script.write_text(text)
    found = findings_of_script(script, tmp_path)
    (finding,) = [one for one in found if one.rule == "GS603"]
    assert mark in text.splitlines()[finding.location.line - 1]
