import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradscope.report.html.charts.curves import curve_chart, drawn_points
from tests.report.html.charts.loops import NORMS, NUMBERS, finding, loop, report_of
from tests.report.html.figures import assert_valid, shown
from tests.report.run.conftest import accumulation
from tests.rules.accumulation.runs import Run


def chart_of(report):
    return curve_chart(report, report.training_run)


def drawn(figure, kind, optimizer=None):
    """By step: what is drawn of a kind; None where the curve breaks off."""
    return {
        step: y
        for trace in figure["data"]
        if trace["meta"].get("curve") == kind and optimizer in (None, trace["name"])
        for step, y in zip(trace["x"], trace["y"], strict=True)
    }


def marked(figure, name):
    """The steps that are marked in a row."""
    return [step for trace in figure["data"] if trace["name"] == name for step in trace["x"]]


@given(st.lists(st.tuples(NUMBERS, NORMS, NORMS), min_size=1, max_size=12), st.integers(1, 3))
def test_every_number_is_drawn_where_it_belongs(steps, optimizers):
    losses = [loss for loss, _, _ in steps]
    recording = loop(losses, [norms for _, *norms in steps], optimizers=optimizers)
    figure = shown(chart_of(report_of(recording)))
    wanted = dict(enumerate(losses))
    assert drawn(figure, "loss") == {
        step: loss if math.isfinite(loss) else None for step, loss in wanted.items()
    }
    broken = [step for step, loss in wanted.items() if not math.isfinite(loss)]
    assert sorted(marked(figure, "loss NaN, inf")) == broken
    assert sorted(marked(figure, "loss 0")) == [s for s, loss in wanted.items() if loss == 0]
    norms = {
        event.step: dict(event.numbers)["norm"]
        for event in recording.events
        if event.kind == "step"
    }
    assert drawn(figure, "norm") == {
        step: norm if math.isfinite(norm) else None for step, norm in norms.items()
    }


@pytest.mark.nightly
@given(st.lists(NUMBERS, min_size=1, max_size=8))
def test_plotly_takes_every_figure(losses):
    norms = [(loss, None) for loss in losses]
    report = report_of(loop(losses, norms), finding(step=0, parameters=("model0.weight0",)))
    assert_valid(chart_of(report))


def test_optimizers_have_curves_of_their_own():
    figure = shown(chart_of(report_of(loop([3.0, 1.0, 2.0, 0.5], optimizers=2))))
    assert drawn(figure, "loss", "opt0") == {0: 3.0, 2: 2.0}
    assert drawn(figure, "loss", "opt1") == {1: 1.0, 3: 0.5}
    assert figure["layout"]["showlegend"]
    assert [trace["name"] for trace in figure["data"] if trace["showlegend"]] == ["opt0", "opt1"]


def test_a_norm_is_shown_before_and_after_a_clip_that_cuts():
    report = report_of(accumulation())
    figure = shown(chart_of(report))
    clips = {e.step: dict(e.numbers)["norm"] for e in report.events if e.kind == "clip-norm"}
    steps = {e.step: dict(e.numbers)["norm"] for e in report.events if e.kind == "step"}
    if any(clips[step] > steps[step] for step in steps):
        assert drawn(figure, "raw") == clips
    assert drawn(figure, "norm") == steps


@pytest.mark.parametrize(
    ("losses", "scale"),
    [
        ([1.0, 31.0], "linear"),
        ([1.0, 32.0], "log"),
        ([-1.0, 99.0], "linear"),
        ([0.0, 1.0, 32.0], "log"),
        ([0.0, 0.0], "linear"),
        ([math.nan, math.inf], "linear"),
    ],
)
def test_a_range_asks_for_its_scale(losses, scale):
    figure = shown(chart_of(report_of(loop(losses))))
    (axis,) = {trace["yaxis"] for trace in figure["data"] if trace["meta"].get("curve") == "loss"}
    assert figure["layout"][f"yaxis{axis[1:]}"]["type"] == scale


def test_scales_can_be_chosen():
    chart = chart_of(report_of(loop([1.0, 2.0])))
    for label, scale in (("logarithmic", "log"), ("linear", "linear")):
        layout = shown(chart, label)["layout"]
        panels = [layout[name] for name in layout if name.startswith("yaxis")]
        assert {panel["type"] for panel in panels} == {scale}


def test_curves_of_one_optimizer_can_be_chosen():
    chart = chart_of(report_of(loop([3.0, 1.0, 2.0, 0.5], optimizers=2), finding(step=1)))
    figure = shown(chart, "opt1")
    visible = {trace["name"] for trace in figure["data"] if trace["visible"]}
    assert visible == {"opt1", "findings"}
    assert "optimizer" not in [
        one["label"] for one in chart_of(report_of(loop([1.0, 2.0]))).content["switches"]
    ]


def test_curves_can_be_drawn_over_seconds():
    recording = loop([1.0, 2.0, 3.0])
    seconds = [event.seconds for event in recording.events if event.kind == "step"]
    figure = shown(chart_of(report_of(recording, finding(step=2))), "seconds")
    (loss,) = [trace for trace in figure["data"] if trace["meta"].get("curve") == "loss"]
    assert loss["x"] == pytest.approx(seconds)
    assert loss["meta"]["links"]["step"] == [0, 1, 2]
    assert figure["layout"]["shapes"][0]["x0"] == seconds[2]
    assert figure["layout"]["meta"]["stepAxes"] == []


def test_findings_are_flags_that_select_step_and_module():
    late = finding(
        step=2, parameters=("model0.weight1",), severity="error", message="<b>x</b> [/y]"
    )
    figure = shown(chart_of(report_of(loop([1.0] * 4), late, finding(step=None))))
    (flags,) = [trace for trace in figure["data"] if trace["name"] == "findings"]
    assert flags["meta"]["links"] == {"step": [2], "module": [0]}
    assert "&lt;b&gt;x&lt;/b&gt; [/y]" in flags["text"][0]
    lines = [shape for shape in figure["layout"]["shapes"] if shape["type"] == "line"]
    assert [(line["x0"], line["line"]["color"]) for line in lines] == [(2, "@error")]


def test_names_of_optimizers_are_no_markup():
    recording = loop([1.0, 2.0], optimizers=2)

    named = tuple(replace(one, name="<i>[/x]\n") for one in recording.evidence)
    figure = shown(chart_of(report_of(replace(recording, evidence=named))))
    names = {trace["name"] for trace in figure["data"] if trace["meta"].get("curve") == "loss"}
    assert names == {"&lt;i&gt;[/x]\\n"}


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(4100, 9000))
def test_of_many_points_extremes_and_what_is_broken_stay(seed, count):

    random = Random(seed)
    values = [random.lognormvariate(0, 1) for _ in range(count)]
    values[random.randrange(count)] = 1e6
    values[random.randrange(count)] = -1.0
    broken = {random.randrange(count) for _ in range(3)}
    points = [(step, math.nan if step in broken else v) for step, v in enumerate(values)]
    found = drawn_points(points)
    assert len(found) < 2100
    assert set(found) <= set(points) or all(
        step in broken for step, v in found if (step, v) not in points
    )
    finite = [v for _, v in points if math.isfinite(v)]
    kept = [v for _, v in found if math.isfinite(v)]
    assert (max(kept), min(kept)) == (max(finite), min(finite))
    assert {step for step, v in found if math.isnan(v)} == broken
    assert [step for step, _ in found] == sorted(step for step, _ in found)


def test_that_points_are_left_out_is_said():
    chart = chart_of(report_of(loop([float(1 + step % 7) for step in range(5000)])))
    assert "Of 5,000 steps" in chart.caption
    assert "Of " not in chart_of(report_of(loop([1.0, 2.0]))).caption


def test_a_run_without_a_step_has_no_curves():
    run = Run()
    run.backward(run.model("model", 1), line=3, loss=1.0)
    assert chart_of(report_of(run.recording())) is None
