"""GS703: terms that oppose or drown each other."""

import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope
from gradscope.recording.evidence.batches import TermPairRecord
from gradscope.rules.engine import judge
from gradscope.rules.settings import Settings
from tests.nightly import some_on_push

GENERATOR = torch.Generator().manual_seed(1)
X, Y = torch.randn(32, 6, generator=GENERATOR), torch.randn(32, 1, generator=GENERATOR)


def recording_of(second, weight=1.0):
    torch.manual_seed(0)

    def loss(output, target):
        one = functional.mse_loss(output, target)
        other = second(output, target)
        return {"loss": one + weight * other, "one": one, "other": other}

    return gradscope.inspect(nn.Linear(6, 1), (X, Y), loss, probe_steps=1).recording


def found(recording):
    return [one for one in judge(recording).findings if one.rule == "GS703"]


def agreeing(output, target):
    return functional.l1_loss(output, target)


def opposed(output, target):
    return functional.mse_loss(output, output.detach() * 2 - target)


def test_opposed_terms_are_a_note_with_the_line_of_a_term():
    (finding,) = found(recording_of(opposed))
    assert finding.severity == "note"
    assert dict(finding.evidence)["cosine"] == pytest.approx(-1)
    assert "one = functional" in finding.location.source


def test_terms_that_agree_are_not_found():
    assert found(recording_of(agreeing)) == []


def test_a_term_of_tiny_weight_is_drowned():
    (finding,) = found(recording_of(agreeing, weight=1e-7))
    assert "other is negligible compared with one" in finding.message


def with_pair(recording, **changes):
    evidence = tuple(
        dataclasses.replace(one, **changes) if isinstance(one, TermPairRecord) else one
        for one in recording.evidence
    )
    return dataclasses.replace(recording, evidence=evidence)


@pytest.mark.parametrize(
    ("changes", "count"),
    some_on_push(
        [
            ({"cosine": -0.51}, 1),
            ({"cosine": -0.5}, 0),
            ({"cosine": -0.49}, 0),
            ({"cosine": math.nan}, 0),
            ({"first_norm": 10_001.0, "second_norm": 1.0, "cosine": 0.0}, 1),
            ({"first_norm": 10_000.0, "second_norm": 1.0, "cosine": 0.0}, 0),
            ({"first_norm": 1.0, "second_norm": 10_001.0, "cosine": 0.0}, 1),
            ({"first_norm": 0.0, "second_norm": 1.0, "cosine": math.nan}, 0),
            ({"first_norm": math.nan, "second_norm": 1.0, "cosine": math.nan}, 0),
            ({"first_norm": math.inf, "second_norm": math.nan, "cosine": math.nan}, 0),
        ],
        3,
    ),
)
def test_cosine_and_ratio_decide(changes, count):
    assert len(found(with_pair(recording_of(agreeing), **changes))) == count


def divergence(mean, log_variance):
    return -0.5 * (1 + log_variance - mean.square() - log_variance.exp())


def likelihood(mean, log_variance):
    return 0.5 * (log_variance + (mean - 1).square() / log_variance.exp())


class Variational(nn.Module):
    """Returns a reconstruction, a mean and the logarithm of a variance."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 4), nn.Linear(2, 6)

    def forward(self, x):
        mean, log_variance = self.encode(x).chunk(2, dim=1)
        return self.decode(mean), mean, log_variance


def reduced(fit, other, *, rows=32, **thresholds):
    torch.manual_seed(0)
    batch = (X[:rows], X[:rows])

    def loss(output, target):
        return fit(output[0], target) + other(*output[1:])

    recording = gradscope.inspect(Variational(), batch, loss, probe_steps=1).recording
    settings = Settings(select=("GS703",), thresholds={"loss-term-conflict": thresholds})
    return judge(recording, settings).findings


def mean_of(output, target):
    return functional.mse_loss(output, target)


def test_divergence_summed_over_the_batch_beside_a_mean_is_an_error():
    (finding,) = reduced(mean_of, lambda *given: divergence(*given).sum())
    assert (finding.severity, dict(finding.evidence)["rows"]) == ("error", 32)
    assert dict(finding.evidence)["factor"] == pytest.approx(1.0)
    assert ".sum()" in finding.location.source


@pytest.mark.parametrize(
    ("fit", "other"),
    some_on_push(
        [
            (mean_of, lambda *given: divergence(*given).sum(1).mean()),
            (mean_of, lambda *given: divergence(*given).sum() / 32),
            (mean_of, lambda *given: 0.01 * divergence(*given).sum()),
            (
                lambda *given: functional.mse_loss(*given, reduction="sum"),
                lambda *given: divergence(*given).sum(),
            ),
            (
                lambda *given: functional.mse_loss(*given, size_average=False),
                lambda *given: divergence(*given).sum(),
            ),
            (
                lambda *given: functional.mse_loss(*given, reduce=False).sum(),
                lambda *given: divergence(*given).sum(),
            ),
            # The mean has a weight that makes up for the sum.
            (lambda *given: 100 * mean_of(*given), lambda *given: divergence(*given).sum()),
            # Sums that are no divergence.
            (mean_of, lambda *given: likelihood(*given).sum()),
            (mean_of, lambda mean, log_variance: mean.square().sum()),
            (mean_of, lambda mean, log_variance: (log_variance.exp() - mean * 2).sum()),
        ],
        {0, 3, 6},
    ),
    ids=[
        "mean",
        "divided",
        "weighted",
        "sums",
        "old-sum",
        "old-none",
        "weighted-mean",
        "likelihood",
        "square",
        "rate",
    ],
)
@pytest.mark.filterwarnings("ignore:size_average and reduce args will be deprecated")
def test_terms_that_fit_each_other_and_other_sums_are_not_found(fit, other):
    assert not reduced(fit, other)


@pytest.mark.parametrize("old", [{"size_average": True}, {"reduce": True, "reduction": "sum"}])
@pytest.mark.filterwarnings("ignore:size_average and reduce args will be deprecated")
def test_mean_of_deprecated_arguments_is_one(old):
    def fit(output, target):
        return functional.mse_loss(output, target, **old)

    assert reduced(fit, lambda *given: divergence(*given).sum())


def test_limits_of_rows_and_of_the_factor():
    def summed(*given):
        return 0.5 * divergence(*given).sum()

    assert reduced(mean_of, summed, rows=8)
    assert not reduced(mean_of, summed, rows=7)
    assert reduced(mean_of, summed, factor=0.5)
    assert not reduced(mean_of, summed, factor=math.nextafter(0.5, 1))
