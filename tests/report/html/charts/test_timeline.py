import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.analysis.loop_windows import windows
from gradscope.report.html.charts import timeline as charts
from gradscope.report.html.charts.timeline import timeline
from tests.report.html.charts.loops import NUMBERS, finding, loop, report_of
from tests.report.html.figures import plain
from tests.report.run.conftest import accumulation, adversarial
from tests.rules.accumulation.runs import Run


def chart_of(report):
    return timeline(report, report.training_run)


def steps_of(content):
    """What the painter finds: by window its step, its lane and its events with their numbers."""
    calls, events, rows = content["calls"], content["events"], content["windows"]
    event = number = 0
    for step, lane, size in zip(rows["step"], rows["lane"], rows["events"], strict=True):
        told = []
        for call in events["call"][event : event + (size or 0)]:
            names = calls["names"][call]
            values = events["numbers"][number : number + len(names)]
            number += len(names)
            measured = dict(zip(names, values, strict=True))
            told.append((calls["word"][call], calls["line"][call], measured, calls["notes"][call]))
        seconds = events["seconds"][event : event + (size or 0)]
        event += size or 0
        yield step, lane, None if size is None else list(zip(told, seconds, strict=True))
    assert (event, number) == (len(events["call"]), len(events["numbers"]))


@given(st.lists(NUMBERS, min_size=1, max_size=8), st.integers(1, 3))
def test_events_come_in_their_order_with_their_numbers(losses, optimizers):
    report = report_of(loop(losses, optimizers=optimizers))
    told = list(steps_of(plain(chart_of(report).content)))
    for (step, _, events), window in zip(told, windows(report.recording), strict=True):
        assert step == window.step.index
        assert [seconds for _, seconds in events] == [event.seconds for event in window.events]
        words = [word for (word, *_), _ in events]
        assert words[1:] == ["forward, backward", "step"][: len(words) - 1]
        loss = events[1][0][2]["loss"]
        assert loss == losses[step] or (math.isnan(loss) and math.isnan(losses[step]))
        assert {line for (_, line, *_), _ in events} == {"train.py:9", "train.py:10", "train.py:11"}


def test_lanes_are_the_pictures_of_the_report():
    report = report_of(adversarial())
    content = plain(chart_of(report).content)
    run = report.training_run
    assert [lane["count"] for lane in content["lanes"]] == [one.count for one in run.patterns]
    assert [lane["optimizer"] for lane in content["lanes"]][:1] == ["opt_c Adam(lr=0.1)"]
    for position, (lane, one) in enumerate(zip(content["lanes"], run.patterns, strict=True)):
        assert content["windows"]["lane"].count(position) == one.count
        assert lane["isTypical"] == one.is_typical
    assert content["lanes"][0]["parts"] == ["zero", "(forward → backward) ×2", "step"]  # noqa: RUF001


def test_lengths_reach_from_step_to_step():
    report = report_of(accumulation())
    content = plain(chart_of(report).content)
    ends = [window.events[-1].seconds for window in windows(report.recording)]
    lengths = content["windows"]["seconds"]
    assert lengths[1:] == pytest.approx([b - a for a, b in pairwise(ends)])


def test_what_goes_without_saying_is_not_told():
    run = Run()
    weights = run.model("model", 2)
    sgd = run.optimizer(weights)
    run.backward(weights, line=5, divided=1.0, scaled=1.0)
    run.backward(weights, line=5, divided=4.0, added=2.0)
    run.event("scaler-step", 6, optimizer=sgd, skipped=1.0, found_inf=1.0)
    run.event("odd-kind", 7, thing=3.0)
    ((_, _, events), *_) = steps_of(plain(chart_of(report_of(run.recording())).content))
    first, second, skipped = (told for told, _ in events[:3])
    assert "divided by" not in first[2] and first[3] == ["scaled"]
    assert second[2]["divided by"] == 4.0
    assert second[2]["added to what no step had used"] == 2.0
    assert skipped[3] == ["skipped", "found NaN or inf"]


def test_the_first_finding_is_shown_first_else_the_last_step():
    recording = loop([1.0] * 9)
    late = finding(step=6)
    assert chart_of(report_of(recording, finding(step=None), late)).content["first"] == 6
    assert chart_of(report_of(recording)).content["first"] == 8
    assert chart_of(report_of(recording, finding(step=99))).content["first"] == 8


def test_of_a_long_run_the_steps_that_tell_most_are_kept(monkeypatch):
    monkeypatch.setattr(charts, "_EVENTS", 300)
    recording = loop([1.0] * 500)
    events = list(recording.events)
    odd = next(position for position, event in enumerate(events) if event.step == 333)
    events[odd] = replace(events[odd], kind="unscale")
    report = report_of(replace(recording, events=tuple(events)), finding(step=111))
    chart = chart_of(report)
    kept = [step for step, _, told in steps_of(plain(chart.content)) if told is not None]
    assert {0, 19, 109, 110, 111, 112, 113, 333, 480, 499} <= set(kept)
    assert 80 <= len(kept) <= 100
    # What lies between is looked at in even steps.
    assert max(b - a for a, b in pairwise(kept)) <= 64
    assert "the events of 40" in chart.caption


def test_names_are_text_for_the_painter():
    run = Run()
    weights = run.model("model", 2)
    name = "</script>\n\x1b[31m<img>"
    sgd = run.optimizer(weights, name=name)
    run.zero(sgd, line=4, subject=name)
    run.backward(weights, line=5)
    run.step(sgd, line=6)
    content = plain(chart_of(report_of(run.recording())).content)
    assert content["calls"]["subject"][0] == "</script>\\n\\x1b[31m<img>"


def test_a_step_without_events_is_shown_empty():
    chart = chart_of(report_of(replace(loop([1.0]), events=())))
    assert plain(chart.content)["windows"]["events"] == [0]


def test_calls_of_steps_that_were_not_timed_have_no_durations():
    report = report_of(replace(loop([1.0] * 6), untimed=(range(2, 4), range(5, 6))))
    chart = chart_of(report)
    assert plain(chart.content)["windows"]["timed"] == [1, 1, 0, 0, 1, 0]
    assert "only the mean duration of the step is known" in chart.caption
    timed = chart_of(report_of(loop([1.0] * 6)))
    assert set(plain(timed.content)["windows"]["timed"]) == {1}
    assert "mean duration" not in timed.caption
