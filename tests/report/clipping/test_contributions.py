import math
from dataclasses import replace

import pytest

from gradscope.analysis.clipping.sections import Contributions
from tests.rules.clipping.clipped_run import ClippedRun


def recording(*names):
    run = ClippedRun()
    run.model("model", len(names))
    found = run.recording()
    records = tuple(
        replace(record, name=name) for record, name in zip(found.parameters, names, strict=True)
    )
    return replace(found, parameters=records)


NAMES = ("model.embedding.weight", "model.blocks.0.a.weight", "model.blocks.1.a.weight")


def test_shares_are_of_the_squared_norm():
    found = Contributions.of(recording(*NAMES), [{0: 3.0, 1: 4.0}, {0: 1.0, 1: 0.0}], ())
    first, second = found.parameters
    assert (first.name, first.largest) == ("model.embedding.weight", 1.0)
    assert first.share == pytest.approx(0.68)
    assert (second.share, second.largest, second.leads) == (pytest.approx(0.32), 0.64, 0.5)
    assert first.before == 2.0


def test_shares_of_other_norms_are_of_their_power():
    (first, second) = Contributions.of(recording(*NAMES), [{0: 1.0, 1: 3.0}], (), 1.0).parameters
    assert (first.share, second.share) == (0.75, 0.25)
    (first, second) = Contributions.of(
        recording(*NAMES), [{0: 1.0, 1: 3.0}], (), math.inf
    ).parameters
    assert (first.share, second.share) == (1.0, 0.0)


def test_modules_are_the_parts_of_the_model_each_of_a_list_for_itself():
    found = Contributions.of(recording(*NAMES), [{0: 1.0, 1: 1.0, 2: 1.0}], ())
    assert {one.name for one in found.modules} == {
        "model.embedding", "model.blocks.0", "model.blocks.1",
    }  # fmt: skip


def test_one_that_makes_more_than_half_leads():
    assert Contributions.of(recording(*NAMES), [{0: 10.0, 1: 1.0}], ()).leader.share > 0.9
    assert Contributions.of(recording(*NAMES), [{0: 1.0, 1: 1.0, 2: 1.0}], ()).leader is None
    assert Contributions.of(recording("model.weight"), [{0: 1.0}], ()).leader is None


@pytest.mark.parametrize("step", [{0: math.nan, 1: 1.0}, {0: math.inf, 1: 1.0}, {0: 0.0, 1: 0.0}])
def test_steps_without_a_finite_norm_have_no_shares(step):
    found = Contributions.of(recording(*NAMES), [step, {0: 1.0, 1: 0.0}], ())
    assert found.parameters[0].share == 1.0
    assert not Contributions.of(recording(*NAMES), [step], ()).parameters


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_shares_of_norms_whose_squares_leave_the_range(size):
    first, second = Contributions.of(recording(*NAMES), [{0: 3 * size, 1: 4 * size}], ()).parameters
    assert (first.share, second.share) == pytest.approx((0.64, 0.36))
