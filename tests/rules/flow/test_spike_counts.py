"""The number of large steps in a summary is never taken for less than it is."""

import random

import pytest

from gradscope.recording.thinning.buckets import bucket_of
from gradscope.rules.helpers.spikes import most_above


def bursts(values, limit):
    """Count the values above a limit by hand; those at most three steps apart count once."""
    last, count = -10, 0
    for step, value in enumerate(values):
        if value >= limit:
            count += step - last > 3
            last = step
    return count


@pytest.mark.parametrize("seed", range(20))
def test_summaries_bound_the_number_of_large_steps(seed):
    chooser = random.Random(seed)
    values = [chooser.lognormvariate(0.0, 1.0) for _ in range(chooser.choice([1, 10, 100, 1_000]))]
    bucket = bucket_of(values, range(len(values)))
    for limit in (0.1, 1.0, 3.0, 10.0, 100.0):
        assert most_above(bucket, limit) >= bursts(values, limit)
        assert (most_above(bucket, limit) == 0) == (bursts(values, limit) == 0)


def test_one_spike_among_even_steps_is_counted_once():
    values = [1.0] * 500 + [30.0] + [1.0] * 499
    assert most_above(bucket_of(values, range(1_000)), 9.0) == 1
