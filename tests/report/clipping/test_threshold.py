import random
from statistics import median

import pytest

from gradscope.analysis.clipping.limits import advise, level_of, sweep


def noise(count, size=1.0, seed=0):
    draw = random.Random(seed)
    return [size * draw.lognormvariate(0, 0.2) for _ in range(count)]


def test_advice_is_the_median_and_three_deviations():
    norms = noise(400)
    middle = median(norms)
    deviation = 1.4826 * median(abs(norm - middle) for norm in norms)
    found = advise(norms, in_order=True)
    assert found.limit == pytest.approx(middle + 3 * deviation, rel=0.05)  # by two digits
    assert found.is_sure
    assert 0 < found.share < 0.1


@pytest.mark.parametrize("size", [30.0, 1e6])
def test_outliers_do_not_move_the_advice(size):
    norms = noise(200)
    spoilt = [size if position % 20 == 0 else norm for position, norm in enumerate(norms)]
    plain, found = advise(norms, in_order=True), advise(spoilt, in_order=True)
    assert found.limit == pytest.approx(plain.limit, rel=0.2)
    assert found.share >= 0.05  # all of the outliers are cut


def test_first_steps_that_are_much_larger_are_left_out():
    norms = [*noise(15, size=20.0), *noise(100)]
    found = advise(norms, in_order=True)
    assert 11 <= found.level.settled <= 15
    assert found.level.first > 10 * found.level.median
    assert found.limit < 3


def test_first_steps_like_the_others_are_kept():
    assert advise(noise(100), in_order=True).level.settled == 0


def test_batches_in_no_order_have_no_first_steps():
    norms = [*noise(15, size=20.0), *noise(100)]
    assert advise(norms, in_order=False).level.settled == 0


def test_norm_that_goes_on_falling_is_told():
    falling = [100 * 0.9**step for step in range(100)]
    found = advise(falling, in_order=True)
    assert found.level.still_moves
    assert not found.is_sure


def test_equal_norms_leave_room():
    assert advise([2.0] * 10, in_order=True).limit == 3.0


@pytest.mark.parametrize("norms", [[], [0.0, 0.0]])
def test_nothing_to_clip_has_no_advice(norms):
    assert advise(norms, in_order=True) is None
    assert sweep(norms, given=None, advised=None) == ()


def test_few_norms_do_not_make_a_sure_advice():
    assert not advise(noise(20), in_order=True).is_sure


def test_level_of_one_norm():
    assert level_of([3.0]).median == 3.0


def test_sweep_holds_what_torch_would_do():
    norms = noise(50, size=3.0)
    rows = sweep(norms, given=1.0, advised=4.4)
    assert [row.limit for row in rows] == sorted(row.limit for row in rows)
    for row in rows:
        factors = [min(row.limit / (norm + 1e-6), 1.0) for norm in norms]
        cut = [factor for factor in factors if factor < 1]
        assert row.share == len(cut) / len(norms)
        assert row.mean == pytest.approx(sum(factors) / len(norms))
        assert row.mean_cut == (pytest.approx(sum(cut) / len(cut)) if cut else None)
    assert {row.limit: row.mark for row in rows if row.mark} == {1.0: "given", 4.4: "auto"}


def test_limit_that_is_given_and_advised_is_one_row():
    rows = sweep(noise(50), given=1.5, advised=1.5)
    assert [row.mark for row in rows if row.mark] == ["given, auto"]


@pytest.mark.parametrize("spread", [1.001, 1.5, 30.0, 1e4, 1e12])
def test_sweep_stays_short(spread):
    norms = [spread ** (position / 99) for position in range(100)]
    assert 3 <= len(sweep(norms, given=0.3, advised=7.7)) <= 12
