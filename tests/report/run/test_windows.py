"""What is told of which step: a loop reads the same wherever it begins."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.analysis.loop_windows import windows
from gradscope.analysis.recording_index import RecordingIndex
from gradscope.analysis.training_run import training_run
from gradscope.analysis.windows import Windows
from gradscope.recording.events import StepEvent
from gradscope.session.report import Report
from tests.report.run.conftest import accumulation, adversarial
from tests.rules.accumulation.runs import Run


def kinds(recording):
    return [" ".join(event.kind for event in window.events) for window in windows(recording)]


def loop(body, steps=4, before=None):
    run = Run()
    weights = run.model("model", 2)
    sgd = run.optimizer(weights)
    calls = {
        "z": lambda line: run.zero(sgd, line=line),
        "b": lambda line: run.backward(weights, line=line),
        "s": lambda line: run.step(sgd, line=line),
        "l": lambda line: run.event("scheduler", line, optimizer=sgd),
        "u": lambda line: run.event("scaler-update", line),
    }
    for line, call in enumerate(before or "", 5):
        calls[call](line)
    for _ in range(steps):
        for line, call in enumerate(body, 10):
            calls[call](line)
    return run.recording()


def test_zeroing_first_belongs_to_the_step_after_it():
    assert kinds(loop("zbs")) == ["zero backward step"] * 4


def test_zeroing_last_belongs_to_the_step_before_it():
    assert kinds(loop("bsz")) == ["backward step zero"] * 4


def test_zeroing_between_passes_stays_where_it_is():
    assert kinds(loop("bzbs")) == ["backward zero backward step"] * 4


def test_what_follows_a_step_belongs_to_it():
    assert kinds(loop("bsul")) == ["backward step scaler-update scheduler"] * 4


def test_what_follows_a_step_is_told_from_what_begins_the_next():
    assert kinds(loop("zbsl")) == ["zero backward step scheduler"] * 4


def test_zeroing_behind_a_penalty_that_some_steps_have_belongs_to_the_step_after_it():
    run = Run()
    weights = run.model("model", 2)
    sgd = run.optimizer(weights)
    for step in range(4):
        if not step % 2:
            run.event("grad", 9)
        run.zero(sgd, line=10)
        run.backward(weights, line=11)
        run.step(sgd, line=12)
    assert kinds(run.recording()) == ["grad zero backward step", "zero backward step"] * 2


def test_zeroing_before_the_loop_is_not_that_at_its_end():
    first, *others = kinds(loop("bsz", before="z"))
    assert first == "zero backward step zero"
    assert others == ["backward step zero"] * 3


def test_a_rest_that_led_to_no_step_is_a_window_of_its_own():
    run = Run()
    weights = run.model("model", 2)
    sgd = run.optimizer(weights)
    for _ in range(3):
        run.backward(weights, line=5)
        run.step(sgd, line=6)
        run.zero(sgd, line=7)
    run.backward(weights, line=5)
    found = windows(run.recording())
    assert [window.is_finished for window in found] == [True, True, True, False]
    assert [event.kind for event in found[-1].events] == ["backward"]


def test_optimizers_that_take_turns_each_begin_in_their_own_way():
    told = {
        (window.optimizer, " ".join(e.kind for e in window.events))
        for window in windows(adversarial())
    }
    assert told == {
        (1, "zero backward backward step"),
        (0, "zero backward step"),
        (2, "step"),
    }


def test_a_step_that_was_skipped_is_a_window_of_its_own():
    run = Run()
    weights = run.model("model", 2)
    sgd = run.optimizer(weights)
    for turn in range(5):
        run.zero(sgd, line=4)
        run.backward(weights, line=5)
        if turn in (0, 1, 3):
            run.event("scaler-step", 6, optimizer=sgd, skipped=1)
        else:
            run.step(sgd, line=6)
            run.event("scaler-step", 6, optimizer=sgd, skipped=0)
        run.event("scaler-update", 7)
    recording = run.recording()
    found = windows(recording)
    assert [window.is_skipped for window in found] == [True, True, False, True, False]
    skipped, made = (
        "zero backward scaler-step scaler-update",
        "zero backward step scaler-step scaler-update",
    )
    assert kinds(recording) == [skipped, skipped, made, skipped, made]
    report = Report.from_recording(recording)
    assert [row.steps for row in report.training_run.optimizers] == [2]
    assert [step.step for step in report.training_run.steps] == [0, 1]
    assert [pattern.count for pattern in report.training_run.patterns] == [3, 2]


def test_a_recording_of_no_run_has_no_windows():
    recording = accumulation()
    assert windows(recording)
    assert not windows(Run().recording())


@given(st.text("zbslu", max_size=12), st.text("zbslu", min_size=1, max_size=8))
def test_nothing_is_lost_and_nothing_changes_places(before, body):
    recording = loop(body, before=before)
    told = [event for window in windows(recording) for event in window.events]
    assert [(one.step, one.kind, one.site, one.seconds) for one in told] == [
        (one.step, one.kind, one.site, one.seconds) for one in recording.events
    ]


def test_optimizers_that_zero_behind_their_steps_keep_their_own():
    run = Run()
    one, other = run.model("one", 1), run.model("other", 1)
    first, second = run.optimizer(one), run.optimizer(other)
    for _ in range(3):
        for optimizer, weights in ((first, one), (second, other)):
            run.backward(weights, line=5 + optimizer)
            run.step(optimizer, line=7 + optimizer)
            run.zero(optimizer, line=9 + optimizer)
    assert kinds(run.recording()) == ["backward step zero"] * 6


@given(st.text("zbslu", max_size=12), st.text("zbslu", min_size=1, max_size=8))
def test_segments_hold_every_event_once_and_end_with_a_step_at_the_latest(before, body):
    shared = Windows(RecordingIndex(loop(body, before=before)))
    told = [event for segment in shared.segments for event in segment.events]
    assert told == list(shared.events)
    for segment in shared.segments:
        assert not any(isinstance(event, StepEvent) for event in segment.events[:-1])
        assert len({event.step for event in segment.events}) == 1


@given(st.text("zbslu", min_size=1, max_size=8))
def test_the_windows_of_the_only_optimizer_have_the_events_before_its_steps(body):
    shared = Windows(RecordingIndex(loop(body)))
    (series,) = shared.series
    told = [event for window in series.windows for event in (*window.events, window.step)]
    assert told == list(shared.events[: len(told)])
    assert not any(isinstance(event, StepEvent) for event in shared.events[len(told) :])


def test_time_of_a_run_is_that_of_its_steps():
    """Imports and data come before the first event, and would make every script look slow."""
    recording = accumulation()
    seconds = training_run(recording).seconds
    assert 0 < seconds <= max(one.seconds for one in recording.events)
    late = tuple(replace(one, seconds=one.seconds + 60) for one in recording.events)
    assert training_run(replace(recording, events=late)).seconds == pytest.approx(seconds)
