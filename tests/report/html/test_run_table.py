import math
from dataclasses import replace
from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from gradscope.report.html.tables import run_parameter_table
from tests.report.html.charts.loops import NORMS, loop, report_of
from tests.report.html.figures import plain


def column(chart, title):
    columns = plain(chart.content)["columns"]
    return next((one["values"] for one in columns if one["title"] == title), None)


def same(one, other):
    return one == other or (one is not None and other is not None and math.isnan(one + other))


@given(st.lists(NORMS, min_size=1, max_size=12))
def test_columns_tell_how_a_gradient_went(norms):
    chart = run_parameter_table(report_of(loop([1.0] * len(norms), [(n, 1.0) for n in norms])))
    finite = [norm for norm in norms if norm is not None and math.isfinite(norm)]
    broken = [s for s, norm in enumerate(norms) if norm is not None and not math.isfinite(norm)]

    def told(title):
        values = column(chart, title)
        return None if values is None else values[0]

    assert same(told("last norm"), norms[-1])
    assert told("median norm") == (median(finite) if finite else None)
    assert told("largest norm") == max(finite, default=None)
    assert told("at step") == (norms.index(max(finite)) if finite else None)
    assert told("NaN, inf from") == (broken[0] if broken else None)
    assert (told("steps without") or 0) == norms.count(None)
    assert (told("steps with zero") or 0) == norms.count(0.0)
    assert column(chart, "last norm")[1] == 1.0


def test_updates_are_told_by_their_median():
    updates = [0.5, None, 0.1, math.nan, 0.3]
    chart = run_parameter_table(report_of(loop([1.0] * 5, updates=updates)))
    assert column(chart, "update / weight") == [0.03, 0.03]
    assert column(run_parameter_table(report_of(loop([1.0]))), "update / weight") is None


def test_each_parameter_names_its_optimizers():
    recording = loop([1.0] * 4, optimizers=2)
    chart = run_parameter_table(report_of(recording))
    assert column(chart, "optimizer") == ["opt0", "opt0", "opt1", "opt1"]
    both = (recording.evidence[0], replace(recording.evidence[1], parameters=(1, 2)))
    shared = run_parameter_table(report_of(replace(recording, evidence=both)))
    assert column(shared, "optimizer") == ["opt0", "opt0, opt1", "opt1", None]


def test_a_parameter_that_was_never_measured_has_dashes_and_no_zeros():
    chart = run_parameter_table(report_of(loop([1.0], optimizers=2)))
    assert column(chart, "last norm") == [1.0, 2.0, None, None]
    assert column(chart, "at step") == [0, 0, None, None]
