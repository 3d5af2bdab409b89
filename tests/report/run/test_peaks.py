"""The quick way to the largest norms finds what the plain one finds."""

import math

from hypothesis import given
from hypothesis import strategies as st

from gradscope.analysis.columns import Columns
from gradscope.analysis.layers import largest_norms
from gradscope.recording.norm_table import NormTable

# Norms of the parameters of each step: not every step measures the same ones.
STEPS = st.lists(
    st.dictionaries(
        st.integers(0, 3),
        st.none() | st.sampled_from([0.0, 1.0, math.inf, math.nan]) | st.floats(0, 10),
        max_size=4,
    ),
    min_size=1,
    max_size=12,
)


def table(steps):
    rows = [
        (step, parameter, "gradient", -1 if norm is None else norm, 1, -1)
        for step, norms in enumerate(steps)
        for parameter, norm in norms.items()
    ]
    return NormTable.of_rows([rows] if rows else [], dict.fromkeys(range(4), 8))


def equal(one, other):
    return repr(one) == repr(other)


@given(steps=STEPS, count=st.integers(1, 12), left_out=st.sets(st.integers(0, 11)))
def test_largest_norms_by_column(steps, count, left_out):
    columns = Columns([n for n in range(len(steps)) if n not in left_out] or [0], count)
    plain = {
        parameter: columns.largest(
            [(step, norms[parameter]) for step, norms in enumerate(steps) if parameter in norms]
        )
        for parameter in range(4)
    }
    found = largest_norms(table(steps), columns)
    nothing = (None,) * columns.count
    assert all(equal(found.get(parameter, nothing), plain[parameter]) for parameter in plain)


def test_parameters_that_were_never_measured_are_left_out():
    assert largest_norms(table([{1: 2.0}, {1: None}]), Columns([0, 1], 2)) == {1: (2.0, None)}
