import math
from array import array
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradscope.recording import stored_gradient as kept_gradient
from gradscope.recording.stored_gradient import (
    StoredGradient,
    StoredPart,
    agreement,
    cosine,
    relative_difference,
)

SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)
MODERATE = st.floats(min_value=-1e6, max_value=1e6, width=32)


def kept(values, *, dims=None, dtype="float32", form="exact", parts=1):
    kind = "d" if dtype in ("float64", "complex128") else "f"
    size = -(-len(values) // parts) or 1
    pieces = [values[start : start + size] for start in range(0, len(values), size)]
    return StoredGradient(
        step=0,
        parameter=0,
        form=form,
        shape=dims or (len(values),),
        dtype=dtype,
        parts=tuple(StoredPart(array(kind, piece).tobytes()) for piece in pieces),
    )


def sparse(rows, *, dims, dtype="float32"):
    """A gradient of which only some rows are stored."""
    values = array("d" if dtype == "float64" else "f", [x for row in rows.values() for x in row])
    part = StoredPart(values.tobytes(), array("q", rows).tobytes())
    return StoredGradient(
        step=0, parameter=0, form="sparse", shape=dims, dtype=dtype, parts=(part,)
    )


def exact_cosine(first, second):
    """The cosine by whole numbers, but for the last roots."""
    one, other = [[Fraction(x) for x in values] for values in (first, second)]
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    norms = sum(a * a for a in one) * sum(b * b for b in other)
    return math.copysign(math.sqrt(dot * dot / norms), dot)


PAIRS = st.integers(1, 30).flatmap(
    lambda size: st.tuples(
        st.lists(MODERATE, min_size=size, max_size=size),
        st.lists(MODERATE, min_size=size, max_size=size),
    )
)


@settings(deadline=None)
@given(pair=PAIRS)
def test_cosine_is_that_of_whole_numbers(pair):
    found = cosine(*map(kept, pair))
    if not all(any(x * x for x in values) for values in pair):
        assert found is None
    else:
        assert found == pytest.approx(exact_cosine(*pair), abs=1e-12)


@settings(deadline=None)
@given(pair=PAIRS, parts=st.integers(1, 4))
def test_relative_difference_is_that_of_the_norms(pair, parts):
    found = relative_difference(kept(pair[0], parts=parts), kept(pair[1], parts=parts))
    larger = max(math.hypot(*pair[0]), math.hypot(*pair[1]))
    difference = math.dist(*pair)
    if larger > 1e-150:
        assert found == pytest.approx(difference / larger, rel=1e-9, abs=1e-15)
        assert 0 <= found <= 2 + 1e-9


@settings(deadline=None)
@given(values=st.lists(SINGLE, min_size=1, max_size=30))
def test_equal_gradients_do_not_differ_at_all(values):
    assert relative_difference(kept(values), kept(values)) == 0.0
    assert cosine(kept(values), kept(values)) in ({1.0} if any(values) else {None})


def test_a_difference_in_the_last_bit_is_observed():
    other = 1 + 2**-23
    found = relative_difference(kept([1.0] * 100), kept([1.0] * 99 + [other]))
    assert found == pytest.approx(2**-23 / 10, rel=1e-6)


def test_opposite_and_orthogonal_gradients():
    assert cosine(kept([1.0, 2.0]), kept([-2.0, -4.0])) == -1.0
    assert cosine(kept([1.0, 0.0]), kept([0.0, 3.0])) == 0.0
    assert relative_difference(kept([1.0, 2.0]), kept([-1.0, -2.0])) == 2.0


def test_zeros_have_no_direction_and_are_no_error():
    zero, other = kept([0.0, 0.0]), kept([1.0, 0.0])
    assert cosine(zero, other) is None and cosine(zero, zero) is None
    assert relative_difference(zero, other) == 1.0
    assert relative_difference(zero, zero) == 0.0


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_an_element_that_is_not_finite_makes_nan(broken):
    for form in ("exact", "sketch"):
        bad, good = kept([1.0, broken], form=form), kept([1.0, 2.0], form=form)
        for pair in ((bad, good), (good, bad), (bad, bad)):
            assert math.isnan(cosine(*pair)) and math.isnan(relative_difference(*pair))


@pytest.mark.parametrize(
    "other",
    [
        kept([1.0, 2.0, 3.0]),
        kept([1.0, 2.0], dims=(2, 1)),
        kept([1.0, 0.0, 2.0, 0.0], dims=(2,), dtype="complex64"),
    ],
    ids=["length", "shape", "complex"],
)
def test_what_is_not_alike_is_not_compared(other):
    one = kept([1.0, 2.0])
    assert agreement(one, other) is agreement(other, one) is None
    assert cosine(one, other) is None and relative_difference(one, other) is None


def test_types_may_differ():
    half = kept([1.0, 2.0], dtype="bfloat16")
    assert cosine(half, kept([1.0, 2.0], dtype="float64")) == 1.0


def test_sparse_gradients_have_zeros_between_their_rows(monkeypatch):
    dense = [0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 5.0, 6.0, 0.0, 0.0]
    one = sparse({1: [1.0, 2.0], 3: [3.0, 4.0], 4: [5.0, 6.0]}, dims=(6, 2))
    for size in (1, 2, 3, 5, 7, 12, 100):
        monkeypatch.setattr(kept_gradient, "PART_ELEMENTS", size)
        parts = -(-len(dense) // size)
        whole = StoredGradient(
            step=0,
            parameter=0,
            form="exact",
            shape=one.shape,
            dtype="float32",
            parts=tuple(
                StoredPart(array("f", dense[start * size : (start + 1) * size]).tobytes())
                for start in range(parts)
            ),
        )
        assert [x for values in one.values() for x in values] == dense
        assert cosine(one, whole) == pytest.approx(1.0) and relative_difference(one, whole) == 0.0


def test_a_sparse_gradient_without_rows_is_zero():
    empty = sparse({}, dims=(3, 2))
    assert [list(values) for values in empty.values()] == [[0.0] * 6]
    assert relative_difference(empty, kept([0.0] * 6, dims=(3, 2))) == 0.0


def test_parameters_without_elements_agree():
    empty = kept([], dims=(0, 4))
    assert cosine(empty, empty) is None and relative_difference(empty, empty) == 0.0


def test_agreements_add_up_to_that_of_the_whole():
    first, second = [1.0, 2.0, 3.0, 4.0], [1.0, -2.0, 0.5, 4.0]
    halves = [agreement(kept(first[part]), kept(second[part])) for part in (slice(2), slice(2, 4))]
    total, whole = halves[0] + halves[1], agreement(kept(first), kept(second))
    assert total.cosine == pytest.approx(whole.cosine)
    assert total.relative_difference == pytest.approx(whole.relative_difference)
    assert not total.is_estimate


def test_agreements_of_sketches_are_estimates():
    one, other = kept([1.0, 0.0], form="sketch"), kept([1.0, 1.0], form="sketch")
    assert agreement(one, other).is_estimate
