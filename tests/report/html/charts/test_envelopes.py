"""The numbers of long curves that the page puts together by what is in view."""

import base64
import math
from array import array

import pytest

from gradscope.analysis.kept_steps import Span
from gradscope.recording.thinning.buckets import bucket_of
from gradscope.report.html.charts.long_runs import envelope
from tests.nightly import some_on_push


def decoded(column):
    if "same" in column:
        same = math.nan if isinstance(column["same"], str) else column["same"]
        return [same] * column["count"]
    if "at" in column:
        code = {1: "b", 2: "h", 4: "i"}[column["bytes"]]
        return list(array(code, base64.b64decode(column["at"])))
    values = list(array("f", base64.b64decode(column["f4"])))
    for position in array("i", base64.b64decode(column.get("none", ""))):
        values[position] = None
    return values


def columns_of(points, spans=(), curves=1):
    found = envelope(points, spans, curves)
    return None if found is None else {name: decoded(one) for name, one in found.items()}


def span(first, values):
    return Span(first, len(values), bucket_of(values, range(first, first + len(values))))


def test_a_short_curve_needs_none():
    assert columns_of([(step, 1.0) for step in range(1_200)]) is None
    assert columns_of([(step, 1.0) for step in range(1_201)]) is not None


def test_single_steps_are_there_as_they_are():
    points = [(step, float(step % 7)) for step in range(2_000)]
    found = columns_of(points)
    assert found["first"] == list(range(2_000))
    assert set(found["count"]) == {1}
    assert found["mean"] == [value for _, value in points]
    assert found["low"] == found["high"] == []


def test_summaries_come_between_the_steps_with_their_ends():
    found = columns_of([(0, 5.0), (20, 7.0)], [span(10, [1.0, 2.0, 6.0, 3.0])])
    assert found == {
        "first": [0, 10, 20],
        "count": [1, 4, 1],
        "mean": [5.0, 3.0, 7.0],
        "low": [1.0],
        "high": [6.0],
    }


def test_what_is_not_finite_breaks_the_line_and_keeps_the_ends():
    found = columns_of([(0, math.nan)], [span(10, [1.0, math.inf, 3.0])])
    assert found["mean"] == [None, None]
    assert (found["low"], found["high"]) == ([1.0], [3.0])


def test_more_than_there_is_room_for_is_put_together_evenly():
    points = [(step, float(step % 10)) for step in range(100_000)]
    found = columns_of(points, curves=4)
    assert len(found["first"]) == 10_000
    assert set(found["count"]) == {10}
    assert set(found["mean"]) == {4.5}
    assert (set(found["low"]), set(found["high"])) == ({0.0}, {9.0})


@pytest.mark.parametrize("broken", some_on_push([0, 54_321], 2))
def test_a_broken_step_among_many_is_not_hidden(broken):
    points = [(step, math.nan if step == broken else 1.0) for step in range(80_000)]
    found = columns_of(points)
    assert found["mean"].count(None) == 1
    assert found["mean"].index(None) == broken // 2
