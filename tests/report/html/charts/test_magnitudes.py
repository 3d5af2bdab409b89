from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gradscope.report.html.charts.magnitudes import MOST_ROWS, magnitudes
from gradscope.session.report import Report
from tests.report.conftest import build, gradient, parameter, stat
from tests.report.html.figures import assert_valid, shown

COUNTS = st.lists(st.integers(0, 50), min_size=1, max_size=40)


def report_of(histograms):
    recording = build()
    parameters = tuple(parameter(at, f"w{at}", 1) for at in range(len(histograms)))
    stats = tuple(
        stat(at, None if found is None else gradient(1.0, lowest_exponent=low, magnitudes=found))
        for at, (low, found) in enumerate(histograms)
    )
    graph = {"nodes": (), "edges": (), "calls": (), "tensor_stats": ()}
    return Report.from_recording(
        replace(recording, parameters=parameters, parameter_stats=stats, **graph)
    )


@given(st.lists(st.tuples(st.integers(-126, 60), st.none() | COUNTS.map(tuple)), min_size=1))
def test_shares_lie_in_their_octaves(histograms):
    chart = magnitudes(report_of(histograms))
    sampled = {at: one for at, one in enumerate(histograms) if one[1] and sum(one[1])}
    if not sampled:
        assert chart is None
        return
    (heat,) = shown(chart)["data"]
    assert heat["meta"]["rows"]["parameter"] == list(sampled)
    for row, (low, counts) in zip(heat["z"], sampled.values(), strict=True):
        found = {x - 0.5: share for x, share in zip(heat["x"], row, strict=True) if share}
        drawn = {low + at: count / sum(counts) for at, count in enumerate(counts) if count}
        assert found.keys() == drawn.keys()
        assert all(abs(found[octave] - share) <= 5.1e-5 for octave, share in drawn.items())


def test_half_precision_is_marked_where_it_matters():
    near = shown(magnitudes(report_of([(-16, (1, 2, 3))])))
    assert [one["text"] for one in near["layout"]["annotations"]] == ["full precision in float16"]
    assert near["layout"]["shapes"][0]["x0"] == -14
    far = shown(magnitudes(report_of([(-4, (1, 2, 3))])))
    assert far["layout"]["annotations"] == []


def test_plotly_takes_the_figure(report):
    assert_valid(magnitudes(report))


def test_of_many_parameters_some_are_drawn():
    chart = magnitudes(report_of([(-3, (1,))] * (3 * MOST_ROWS)))
    (heat,) = shown(chart)["data"]
    assert len(heat["y"]) == len(set(heat["y"])) == MOST_ROWS
    assert f"{MOST_ROWS} of {3 * MOST_ROWS} parameters are drawn" in chart.caption
