"""Accumulated micro-batches, against plain loops in torch."""

import copy
import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

from gradscope.recording.evidence.batches import (
    AccumulatedGradient,
    AccumulationRecord,
    MicroBatchRecord,
)
from tests.nightly import some_on_push
from tests.probes.micro_batching import IGNORING, MEAN, SUM, X, Y, compared, net, recorded


def gradients(model, loss, batch):
    """Return the gradients that a plain backward accumulates, on a copy in double precision."""
    model = copy.deepcopy(model).double()
    for x, y in batch:
        loss(model(x.double()), y).backward()
    return [parameter.grad for parameter in model.parameters()]


def parts_of(number, y=Y):
    return list(zip(X.tensor_split(number), y.tensor_split(number), strict=True))


@pytest.mark.parametrize("number", some_on_push([2, 4, 8], 2))
def test_mean_has_to_be_divided(number):
    found = compared(net(), (X, Y), MEAN, number)
    assert (found.law, found.rows) == ("mean", 8)
    assert found.scale == pytest.approx(number, rel=1e-5)
    assert found.remaining < 1e-6


@pytest.mark.parametrize("number", some_on_push([2, 3, 8], 3))
def test_sum_is_right_as_it_is(number):
    found = compared(net(), (X, Y), SUM, number)
    assert found.law == "equal"
    assert found.deviation < 1e-6


def test_numbers_are_those_of_a_plain_loop():
    model = net()
    recording = recorded(model, (X, IGNORING), MEAN, 2)
    whole = gradients(model, MEAN, [(X, IGNORING)])
    summed = gradients(model, MEAN, parts_of(2, IGNORING))
    rows = recording.evidence_of(AccumulatedGradient)
    assert [row.parameter for row in rows] == [0, 1, 2, 3]
    for row, one, other in zip(rows, whole, summed, strict=True):
        assert row.norm == pytest.approx(float(one.norm()), rel=1e-5)
        scale = float((one * other).sum() / one.square().sum())
        assert row.scale == pytest.approx(scale, rel=1e-4)
        deviation = float((other - one).norm() / one.norm())
        assert row.deviation == pytest.approx(deviation, rel=1e-4)
    (found,) = recording.evidence_of(AccumulationRecord)
    flat, total = (torch.cat([g.flatten() for g in one]) for one in (whole, summed))
    assert found.cosine == pytest.approx(
        float(functional.cosine_similarity(flat, total, dim=0)), rel=1e-5
    )
    divided = float((total / 2 - flat).norm() / flat.norm())
    assert found.divided == pytest.approx(divided, rel=1e-4)


def test_mean_over_targets_is_reported_by_what_is_not_ignored():
    recording = recorded(net(), (X, IGNORING), MEAN, 2)
    (found,) = recording.evidence_of(AccumulationRecord)
    assert (found.law, found.unit) == ("counted", "targets")
    parts = recording.evidence_of(MicroBatchRecord)
    assert [part.count for part in parts] == [1, 4]
    assert [part.weight for part in parts] == pytest.approx([0.2, 0.8])


def test_the_weights_give_the_gradient_of_the_full_batch():
    model = net()
    parts = recorded(model, (X, IGNORING), MEAN, 3).evidence_of(MicroBatchRecord)
    weighed = [torch.zeros_like(p, dtype=torch.float64) for p in model.parameters()]
    for part, batch in zip(parts, parts_of(3, IGNORING), strict=True):
        for total, one in zip(weighed, gradients(model, MEAN, [batch]), strict=True):
            total += part.weight * one
    for total, one in zip(weighed, gradients(model, MEAN, [(X, IGNORING)]), strict=True):
        torch.testing.assert_close(total, one)


def test_uneven_parts_of_a_mean_go_by_their_rows():
    recording = recorded(net(), (X, Y), MEAN, 3)
    (found,) = recording.evidence_of(AccumulationRecord)
    assert (found.law, found.unit) == ("counted", "rows")
    assert [part.rows for part in recording.evidence_of(MicroBatchRecord)] == [3, 3, 2]


def test_class_weights_count():
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.5]))
    recording = recorded(net(), (X, Y), loss, 4)
    (found,) = recording.evidence_of(AccumulationRecord)
    assert (found.law, found.unit) == ("counted", "the class weights of the targets")
    expected = [float(loss.weight[part].sum()) for part in Y.tensor_split(4)]
    assert [part.count for part in recording.evidence_of(MicroBatchRecord)] == expected


def masked_mean(output, batch):
    losses = functional.cross_entropy(output, batch["target"], reduction="none")
    return (losses * batch["mask"]).sum() / batch["mask"].sum()


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()

    def forward(self, x):
        return self.body(x)


def test_mask_of_the_batch_explains_a_mean_of_the_users_own():
    batch = {"x": X, "target": Y, "mask": torch.tensor([1.0, 1, 1, 1, 1, 0, 0, 0])}
    found = compared(Named(), batch, masked_mean, 2)
    assert (found.law, found.unit) == ("counted", "elements of `batch['mask']` that are not 0")


def test_root_of_a_mean_needs_weights_that_nothing_counts():
    found = compared(
        net(), (X, torch.randn(8, 3)), lambda o, t: functional.mse_loss(o, t).sqrt(), 2
    )
    assert found.law == "fitted"


def test_micro_batch_without_a_target_is_reported():
    recording = recorded(net(), (X, IGNORING), MEAN, 4)
    (found,) = recording.evidence_of(AccumulationRecord)
    assert (found.law, found.obstruction, found.unit) == ("none", "non-finite", "targets")
    parts = recording.evidence_of(MicroBatchRecord)
    assert [part.is_finite for part in parts] == [True, False, True, True]
    assert [part.count for part in parts] == [1, 0, 2, 2]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "layer",
    some_on_push(
        [
            partial(nn.LayerNorm, 16),
            partial(nn.Dropout, 0.5),
            partial(nn.AlphaDropout, 0.5),
            nn.Identity,
        ],
        3,
    ),
)
def test_layers_without_batch_statistics_add_up(layer):
    found = compared(net(layer()), (X, Y), MEAN, 4)
    assert (found.law, found.unmatched) == ("mean", 0)


def test_batch_norm_is_named_and_set_apart_from_the_loss():
    model = net(nn.BatchNorm1d(16))
    found = compared(model, (X, Y), MEAN, 4)
    assert (found.law, found.obstruction, found.apart) == ("none", "batch norm", "mean")
    assert found.modules == (2,)
    assert compared(model, (X, Y), SUM, 4).apart == "equal"


def test_batch_norm_in_eval_mode_is_none_of_it():
    model = net(nn.BatchNorm1d(16)).eval()
    found = compared(model, (X, Y), MEAN, 4)
    assert (found.law, found.modules) == ("mean", ())


@pytest.mark.nightly
def test_batch_norm_without_running_statistics_cannot_be_switched_off():
    found = compared(net(nn.BatchNorm1d(16, track_running_stats=False)), (X, Y), MEAN, 4)
    assert (found.obstruction, found.apart) == ("batch norm", "none")


def in_batch_negatives(output, target):
    embedded = functional.normalize(output, dim=1)
    similarity = embedded @ embedded.T / 0.1
    return functional.cross_entropy(similarity, torch.arange(len(output)).roll(1))


def test_loss_that_compares_examples_is_reported_with_its_line():
    recording = recorded(net(), (X, Y), in_batch_negatives, 2)
    (found,) = recording.evidence_of(AccumulationRecord)
    assert (found.law, found.obstruction) == ("none", "examples meet")
    assert "embedded @ embedded.T" in recording.sites[found.site].source


@pytest.mark.nightly
def test_loss_that_compares_examples_under_batch_norm_is_not_laid_on_that():
    found = compared(net(nn.BatchNorm1d(16)), (X, Y), in_batch_negatives, 2)
    assert (found.obstruction, found.apart) == ("examples meet", "none")


@pytest.mark.nightly
@pytest.mark.parametrize(("reduction", "law"), some_on_push([("sum", "none"), ("mean", "mean")], 2))
def test_penalty_beside_a_sum_is_added_by_each_micro_batch(reduction, law):
    def penalised(model, batch):
        penalty = sum(parameter.square().sum() for parameter in model.parameters())
        return (
            functional.cross_entropy(model(batch[0]), batch[1], reduction=reduction) + 0.1 * penalty
        )

    found = compared(net(), (X, Y), penalised, 4)
    assert (found.law, found.obstruction) == (law, "repeated term" if law == "none" else None)


@pytest.mark.nightly
def test_permutation_of_the_batch_cannot_be_shared():
    def mixed_up(model, batch):
        return functional.cross_entropy(model(batch[0]), batch[1][torch.randperm(len(batch[1]))])

    found = compared(net(), (X, Y), mixed_up, 2)
    assert (found.law, found.obstruction) == ("none", "random numbers")
    assert found.unmatched


@pytest.mark.nightly
def test_half_precision_is_given_its_rounding():
    batch = (X.bfloat16(), Y)
    found = compared(net().bfloat16(), batch, MEAN, 4)
    assert found.law == "mean"
    assert 1e-4 < found.remaining < 2e-2


@pytest.mark.nightly
def test_rounding_of_a_bias_before_batch_norm_is_not_compared():
    model = net(nn.BatchNorm1d(16)).double()
    rows = recorded(model, (X.double(), Y), MEAN, 2).evidence_of(AccumulatedGradient)
    bias = next(row for row in rows if row.parameter == 1)
    assert math.isnan(bias.deviation)
    assert not math.isnan(rows[0].deviation)


@pytest.mark.nightly
def test_expert_that_only_one_micro_batch_reaches_is_compared():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(6, 3) for _ in range(2))

        def forward(self, x):
            # The first example alone goes to the second expert.
            is_special = x[:, 0] == X[0, 0]
            first = self.experts[0](x[~is_special])
            if not is_special.any():
                return first
            return torch.cat([self.experts[1](x[is_special]), first])

    found = compared(Experts(), (X, Y), MEAN, 4)
    assert found.law == "mean"
