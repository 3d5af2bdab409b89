import math

import pytest

from gradscope.analysis.attention import logit_series
from gradscope.recording.evidence.forward import LogitRecord
from gradscope.recording.records import TensorRef
from gradscope.rules.flow.logits_grow import LogitsGrow
from tests.rules.flow.captured_evidence import found_by, with_captured

STEPS = (0, 1, 2, 3, 100, 200)


def attention(*largest):
    return LogitRecord(
        tensor=TensorRef(node=0, slot=0),
        kind="attention",
        largest=largest,
        log_normaliser=math.nan,
        rows=64,
    )


def output(log_normaliser):
    return LogitRecord(
        tensor=TensorRef(node=0, slot=0),
        kind="output",
        largest=(1.0,),
        log_normaliser=log_normaliser,
        rows=64,
    )


def scores(*values, **thresholds):
    steps = zip(STEPS, map(attention, values), strict=False)
    return found_by(LogitsGrow, with_captured(steps), **thresholds)


def test_scores_that_grow_beyond_the_limit_are_a_warning_with_their_head():
    steps = zip(STEPS, [attention(1.0, n) for n in (1, 1, 2, 3, 60, 150)], strict=True)
    (found,) = found_by(LogitsGrow, with_captured(steps))
    assert (found.severity, found.step) == ("warning", 200)
    evidence = dict(found.evidence)
    assert (evidence["largest_logit"], evidence["head"], evidence["first"]) == (150, 1, 1)


@pytest.mark.parametrize(("last", "count"), [(99.9, 0), (100.0, 1), (101.0, 1)])
def test_limit_decides(last, count):
    assert len(scores(1, 1, 2, 3, 60, last)) == count


@pytest.mark.parametrize(("first", "count"), [(25.1, 0), (25.0, 1), (24.0, 1)])
def test_scores_that_are_large_from_the_start_do_not_grow(first, count):
    assert len(scores(first, 30, 40, 50, 60, 100)) == count


def test_one_batch_is_no_drift():
    assert not scores(1, 1, 2, 3, 4, 150)


def test_a_peak_that_is_over_is_no_drift():
    assert not scores(1, 1, 2, 900, 400, 150)


@pytest.mark.parametrize(("highest", "count"), [(299, 1), (300, 1), (301, 0)])
def test_lasting_decides(highest, count):
    assert len(scores(1, 1, 2, highest, 400 / 2, 150, lasting=0.5)) == count


@pytest.mark.parametrize(("captures", "count"), [(5, 1), (6, 1), (7, 0)])
def test_number_of_captures_decides(captures, count):
    assert len(scores(1, 1, 2, 3, 60, 150, captures=captures)) == count


def test_scores_of_a_healthy_training_rise_and_stay():
    assert not scores(1, 2, 5, 22, 29, 35)


def test_log_z_of_outputs_is_a_note_in_both_directions():
    for sign in (1, -1):
        steps = zip(STEPS, [output(sign * n) for n in (3, 3, 4, 5, 70, 120)], strict=True)
        (found,) = found_by(LogitsGrow, with_captured(steps))
        assert found.severity == "note"
        assert dict(found.evidence)["log_normaliser"] == sign * 120


def test_nan_and_few_steps_are_not_judged():
    assert not scores(1, 1, 2, 3, 60, math.nan)
    assert "fewer than" in found_by(LogitsGrow, with_captured([(0, attention(1.0))]), reason=True)
    assert "no softmax" in found_by(LogitsGrow, with_captured([]), reason=True)


@pytest.mark.parametrize("calls", [(math.nan, 2.0), (2.0, math.nan)])
def test_nan_of_one_call_in_a_step_is_kept(calls):
    recording = with_captured((0, attention(largest)) for largest in calls)
    (series,) = logit_series(recording)
    (point,) = series.points
    assert math.isnan(point.value)
