import builtins
import math
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradscope.recording.stored_gradient import BUCKETS, sketch, sketch_in_python


@settings(deadline=None)
@given(parts=st.lists(st.lists(st.integers(-1_000, 1_000), max_size=300), max_size=4))
def test_sketches_by_numpy_and_by_python_are_the_same(parts):
    vector = [array("f", map(float, part)) for part in parts]
    found = sketch(vector)
    assert found == sketch_in_python(vector) and len(found) == BUCKETS
    # Of whole numbers no sum is rounded: all of each element is in one bucket.
    assert sum(map(abs, found)) <= sum(abs(x) for part in parts for x in part)
    assert sum(found) % 2 == sum(x for part in parts for x in part) % 2


def test_elements_are_spread_evenly_with_either_sign():
    size = 100 * BUCKETS
    counts = sketch([array("f", [1.0] * size)])
    # Each bucket is a sum of about a hundred signs, as if they were drawn.
    assert abs(sum(counts)) < 4 * math.sqrt(size)
    assert sum(x * x for x in counts) == pytest.approx(size, rel=5 * math.sqrt(2 / BUCKETS))
    assert max(map(abs, counts)) < 6 * math.sqrt(100)


def test_numpy_need_not_be_installed(monkeypatch):
    plain = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "numpy":
            raise ImportError
        return plain(name, *args, **kwargs)

    vector = [array("d", [1.0, -2.5, 3.0])]
    by_numpy = sketch(vector)
    monkeypatch.setattr(builtins, "__import__", without)
    assert sketch(vector) == by_numpy


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_what_is_not_finite_stays_so(broken):
    for way in (sketch, sketch_in_python):
        assert not math.isfinite(sum(way([array("f", [1.0, broken])])))
