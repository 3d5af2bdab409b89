import builtins
import math
import random
from array import array
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradscope.recording.stored_gradient import in_python, inner_products
from gradscope.recording.thinning.chunks import cosines_of
from gradscope.recording.thinning.readings import Reading

NUMBERS = st.floats(min_value=-(2.0**50), max_value=2.0**50, width=32)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=40)
WAYS = pytest.mark.parametrize("way", [in_python, inner_products])


@WAYS
@settings(deadline=None)
@given(pairs=PAIRS, kind=st.sampled_from("fd"))
def test_sums_are_those_of_whole_numbers(way, pairs, kind):
    found = way(*(array(kind, [pair[position] for pair in pairs]) for position in (0, 1)))
    exact = [(Fraction(one), Fraction(other)) for one, other in pairs]
    scale = float(sum(abs(a) * abs(b) + a * a + b * b for a, b in exact))
    for value, terms in (
        (found.dot, [a * b for a, b in exact]),
        (found.first, [a * a for a, _ in exact]),
        (found.second, [b * b for _, b in exact]),
        (found.difference, [(a - b) ** 2 for a, b in exact]),
    ):
        assert value == pytest.approx(float(sum(terms)), abs=1e-14 * scale + 1e-300)


@WAYS
@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_stays_so(way, broken):
    found = way(array("f", [1.0, broken]), array("f", [1.0, 2.0]))
    assert not any(map(math.isfinite, (found.dot, found.first, found.difference)))
    assert found.second == 5.0


@WAYS
def test_small_differences_of_equal_vectors_are_observed(way):
    one, other = array("d", [1.0] * 1_000), array("d", [1.0] * 999 + [1 + 2**-50])
    assert way(one, other).difference == 2.0**-100
    assert way(one, one).difference == 0.0


def test_numpy_need_not_be_installed(monkeypatch):
    plain = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "numpy":
            raise ImportError
        return plain(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    one, other = array("f", [1.0, 2.0]), array("f", [3.0, 4.0])
    assert inner_products(one, other) == in_python(one, other) == (11.0, 5.0, 25.0, 8.0)


def test_cosines_are_counted_by_line_and_hundredth():
    chooser = random.Random(0)
    cosines = [chooser.uniform(-1.0, 1.0) for _ in range(500)]
    blank = Reading(0, None, {})
    readings = [
        replace(blank, step=step, cosines={step % 2: cosine}) for step, cosine in enumerate(cosines)
    ]
    found = cosines_of(readings)
    for site in (0, 1):
        own = cosines[site::2]
        assert sum(found[site].values()) == len(own)
        for limit in (0, 50, 80, 95):
            below = sum(count for hundredth, count in found[site].items() if hundredth < limit)
            assert below == sum(cosine < limit / 100 for cosine in own)
    assert (
        found[0] + found[1]
        == cosines_of(
            [
                replace(one, cosines={0: cosine})
                for one, cosine in zip(readings, cosines, strict=True)
            ]
        )[0]
    )
    assert not Counter(cosines_of([blank]))
