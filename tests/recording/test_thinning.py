"""A recording within its limit: what stays whole, and what summaries say of the rest."""

import dataclasses
import gc
import math
import random
import sqlite3
from array import array
from contextlib import closing
from itertools import pairwise
from statistics import fmean

import pytest

import gradscope
from gradscope.analysis.kept_steps import KeptSteps
from gradscope.analysis.training_run import training_run
from gradscope.errors import GradscopeError
from gradscope.options.checks import WrongValue
from gradscope.options.recording_options import bytes_of
from gradscope.recording.evidence.summaries import LimitRecord, StepSummary
from gradscope.recording.meta import header_of
from gradscope.recording.records import CapturedStep, EventRecord, ParameterRecord, Site, StepRecord
from gradscope.recording.repetitions import RepeatedSteps
from gradscope.recording.run_recorder import RunRecorder, RunStep
from gradscope.recording.store import load_recording
from gradscope.recording.thinning.room import Room
from gradscope.report.documents.run_phrasing import dropped_text
from tests.nightly import some_on_push
from tests.recording.recordings import same, small

ROOM = Room(limit=2_000_000, recent=150, chunks=10, around=0, captured=8)
KINDS = ("zero", "backward", "step")


def events_of(step, loss, norm):
    numbers = {
        "zero": (),
        "backward": (("loss", loss),),
        "step": (("norm", norm), ("lr", 0.1), ("nonfinite", float(not math.isfinite(norm)))),
    }
    return tuple(
        EventRecord(
            step=step,
            order=order,
            kind=kind,
            seconds=float(step),
            site=None,
            numbers=numbers[kind],
            optimizer=None if kind == "backward" else 0,
        )
        for order, kind in enumerate(KINDS)
    )


def run_step(step, loss, norm, parameters=2):
    return RunStep(
        step=StepRecord(index=step, kind="run", graph=None, loss=loss, optimizer="SGD(lr=0.1)"),
        events=events_of(step, loss, norm),
        norms=[(place, "gradient", norm + place, 2.0, None) for place in range(parameters)],
    )


def recorder_at(path, room, parameters=2):
    recorder = RunRecorder(path, header_of(small()), room)
    first = small().parameters[0]
    records = tuple(
        dataclasses.replace(first, index=place, name=f"p{place}") for place in range(parameters)
    )
    assert all(isinstance(record, ParameterRecord) for record in records)
    recorder.add(RunStep(parameters=records, modules=small().modules))
    return recorder


def numbers(count):
    """Losses and norms that vary, without a spike."""
    draw = random.Random(0)
    return [(1 + draw.random(), 1 + draw.random() / 2) for _ in range(count)]


def written(path, room, values, parameters=2):
    recorder = recorder_at(path, room, parameters)
    for step, (loss, norm) in enumerate(values):
        recorder.add(run_step(step, loss, norm, parameters))
    recorder.close()
    return load_recording(path)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The numbers of 3,000 steps, with all of them kept, and with little kept."""
    folder = tmp_path_factory.mktemp("thinning")
    values = numbers(3_000)
    whole = written(folder / "whole.gradscope", None, values)
    return values, whole, written(folder / "kept.gradscope", ROOM, values)


def summaries(recording):
    """The first steps of the blocks that stand for others."""
    return [one.block_first for one in recording.evidence_of(StepSummary)]


def steps_of(recording):
    return [step.index for step in recording.steps]


def test_first_and_last_steps_are_whole_and_each_kept_one_is_as_it_was(both):
    _, whole, kept = both
    found = set(steps_of(kept))
    assert found >= {*range(100), *range(2_850, 3_000)}
    assert len(found) < 700
    assert kept.steps == tuple(step for step in whole.steps if step.index in found)
    assert kept.events == tuple(event for event in whole.events if event.step in found)
    stats = tuple(stat for stat in whole.parameter_stats if stat.step in found)
    assert same(tuple(kept.parameter_stats), stats)


def test_summaries_are_exact(both):
    values, _, kept = both
    spans = list(KeptSteps(kept).spans("loss", [0]))
    assert spans[0].first == 100
    for one, following in pairwise(spans):
        assert one.first + one.count == following.first
    assert sorted({span.count for span in spans}) == [10, 100]
    for span in spans:
        losses = [loss for loss, _ in values[span.first : span.first + span.count]]
        bucket = span.bucket
        assert (bucket.count, bucket.broken) == (span.count, 0)
        assert (bucket.lowest, bucket.highest) == (min(losses), max(losses))
        assert bucket.mean == pytest.approx(fmean(losses), rel=1e-12)
        assert bucket.last == losses[-1]
        assert values[int(bucket.highest_at)][0] == bucket.highest


def test_every_step_is_counted(both):
    _, _, kept = both
    steps = KeptSteps(kept)
    assert steps.total == 3_000
    present = set(steps_of(kept))
    told = [step for step in present if step + 1 not in steps.paused]
    assert sum(steps.counts.get(step, 1) for step in told) == 3_000


def test_events_of_folded_steps_are_not_in_memory(tmp_path):
    before = events_in_memory()
    recorder = recorder_at(tmp_path / "run.gradscope", dataclasses.replace(ROOM, around=500))
    for step, (loss, norm) in enumerate(numbers(2_500)):
        # Many steps are broken, and stay whole with those around.
        recorder.add(run_step(step, loss, math.nan if step % 100 == 50 else norm))
    held = events_in_memory() - before
    recorder.close()
    assert held < len(KINDS) * 450  # 150 last ones, 100 first ones, and up to two folds that wait


def events_in_memory():
    return sum(isinstance(one, EventRecord) for one in gc.get_objects())


def test_sqlite3_shell_sees_the_summaries(both, tmp_path):
    values, _, _ = both
    written(tmp_path / "run.gradscope", ROOM, values[:1_000])
    with closing(sqlite3.connect(tmp_path / "run.gradscope")) as base:
        rows = base.execute(
            "SELECT first, steps, lowest, highest, mean FROM step_bucket WHERE kind = 'loss'"
        ).fetchall()
    assert len(rows) > 50
    for first, steps, lowest, highest, mean in rows:
        losses = [loss for loss, _ in values[first : first + steps]]
        assert (lowest, highest) == (min(losses), max(losses))
        assert mean == pytest.approx(fmean(losses), rel=1e-12)


def test_what_is_broken_stays_whole_with_the_steps_around(tmp_path):
    values = numbers(2_000)
    values[700] = (math.nan, math.inf)
    room = dataclasses.replace(ROOM, around=300)
    kept = written(tmp_path / "run.gradscope", room, values)
    assert set(steps_of(kept)) >= set(range(700 - 128, 711))
    (broken,) = [s for s in KeptSteps(kept).spans("norm", [0]) if s.bucket.broken]
    assert broken.first <= 700 < broken.first + broken.count


@pytest.mark.nightly
def test_the_larger_spike_is_kept_where_there_is_no_room_for_both(tmp_path):
    values = numbers(2_000)
    values[500], values[900] = (1.0, 40.0), (1.0, 80.0)
    room = dataclasses.replace(ROOM, around=400)
    values[1_300] = (1.0, 60.0)
    kept = set(steps_of(written(tmp_path / "run.gradscope", room, values)))
    assert kept >= {*range(900 - 128, 911), *range(1_300 - 128, 1_311)}
    assert not kept >= set(range(500 - 128, 511))


def test_a_spike_is_kept_rather_than_a_larger_norm_that_is_none(tmp_path):
    values = numbers(2_000)
    for step in range(10, 800, 10):
        values[step] = (1.0, 40.0)
    values[605] = (1.0, 60.0)  # 50 times the usual norm, but not twice the largest before
    values[1_300] = (1.0, 12.0)
    room = dataclasses.replace(ROOM, around=200)
    kept = set(steps_of(written(tmp_path / "run.gradscope", room, values)))
    assert kept >= set(range(1_300 - 128, 1_311))
    assert not kept >= set(range(605 - 128, 616))


def test_the_file_stays_within_its_limit(tmp_path):
    path = tmp_path / "run.gradscope"
    room = Room(limit=2_000_000)
    recorder = recorder_at(path, room, parameters=40)
    most = 0
    for step, (loss, norm) in enumerate(numbers(2_500)):
        recorder.add(run_step(step, loss, norm, parameters=40))
        most = max(most, path.stat().st_size)
    recorder.close()
    assert most < 1.1 * room.limit
    kept = load_recording(path)
    assert KeptSteps(kept).total == 2_500
    assert steps_of(kept)[-100:] == list(range(2_400, 2_500))


def repeating(first, count, source=0):
    return RepeatedSteps(
        first=first,
        sources=(source,),
        choices=array("H", [0] * count).tobytes(),
        losses=array("d", [1.0 + (first + turn) % 7 for turn in range(count)]).tobytes(),
        rates=array("d", [0.1] * count).tobytes(),
        began=float(first),
        ended=float(first + count),
    )


def test_it_is_known_which_steps_repeat_others_and_were_not_timed(tmp_path):
    recorder = recorder_at(tmp_path / "run.gradscope", None)
    recorder.add(run_step(0, 1.0, 1.0))
    recorder.repeat(repeating(1, 3))
    recorder.add(run_step(4, 1.0, 1.0))
    recorder.close()
    assert load_recording(tmp_path / "run.gradscope").untimed == (range(1, 4),)


def repeated_run(path, room):
    """Every 90 steps, one is recorded in full, and the others repeat it or a much earlier one."""
    recorder = recorder_at(path, room)
    step = source = 0
    if recorder.thinner is not None:
        recorder.thinner.in_use = lambda: {120, source}
    while step < 2_000:
        if step % 90 == 0 or step == 120:
            recorder.add(run_step(step, 1.0, 1.0))
            source = 120 if step % 360 == 0 and step else step
            step += 1
            continue
        ahead = (120 if step < 120 else 2_000) - step
        count = min(37, 90 - step % 90, ahead)
        recorder.repeat(repeating(step, count, source))
        step += count
    recorder.close()
    return load_recording(path)


def test_repeated_steps_that_are_kept_are_as_they_were(tmp_path):
    whole = repeated_run(tmp_path / "whole.gradscope", None)
    kept = repeated_run(tmp_path / "kept.gradscope", ROOM)
    found = set(steps_of(kept))
    assert 200 < len(found) < 600
    assert 120 in found  # later steps repeat it
    assert KeptSteps(kept).total == 2_000
    told = [(one.step, one.kind, one.numbers, one.optimizer) for one in kept.events]
    assert told == [
        (one.step, one.kind, one.numbers, one.optimizer)
        for one in whole.events
        if one.step in found
    ]
    for span in KeptSteps(kept).spans("loss", [0]):
        steps = range(span.first, span.first + span.count)
        losses = [whole.steps[step].loss for step in steps]
        assert (span.bucket.lowest, span.bucket.highest) == (min(losses), max(losses))


def test_of_steps_that_are_rarely_measured_the_measured_ones_stay(tmp_path):
    kept = repeated_run(tmp_path / "kept.gradscope", ROOM)
    measured = {stat.step for stat in kept.parameter_stats}
    old = [step for step in steps_of(kept) if 200 <= step < 1_700]
    assert len(measured & set(old)) >= len(old) // ROOM.block - 1


def test_captured_steps_are_thinned_out_but_for_those_that_others_repeat(tmp_path):
    path = tmp_path / "run.gradscope"
    recorder = recorder_at(path, ROOM)
    captured = dataclasses.replace(
        small(), steps=(StepRecord(index=0, kind="step", graph=0, loss=1.0, optimizer=None),)
    )
    for step, (loss, norm) in enumerate(numbers(640)):
        one = run_step(step, loss, norm)
        if step % 16 == 0:
            looks = (
                CapturedStep(
                    step=step,
                    order=1,
                    recording=captured,
                    same_as=None if step == 0 else 0,
                ),
            )
            one = dataclasses.replace(one, captured_steps=looks)
        recorder.add(one)
    recorder.close()
    whole = load_recording(path)
    kept = whole.captured_steps
    assert len(kept) <= ROOM.captured
    # The file is far below its limit: that is not why they were dropped.
    assert path.stat().st_size < ROOM.limit / 2
    dropped = dropped_text(training_run(whole))
    assert dropped == f"{40 - len(kept)} captured steps; --keep all keeps everything"
    assert kept[0].step == 0 and kept[-1].step >= 600
    assert [one.same_as for one in kept] == [None, *[0] * (len(kept) - 1)]
    assert all(one.recording.parameters == captured.parameters for one in kept)
    # What follows a captured backward is read in its step. No other old step stays for it.
    found = {event.step for event in whole.events if event.kind == "step"}
    assert {one.step for one in kept} <= found
    blocks = {step for one in summaries(whole) for step in range(one, one + ROOM.block)}
    old = {step for step in found if 100 <= step < 640 - ROOM.recent - 100}
    assert old <= blocks | {one.step for one in kept}


def test_a_killed_run_has_every_step_that_was_written(tmp_path):
    path = tmp_path / "run.gradscope"
    recorder = recorder_at(path, ROOM)
    for step, (loss, norm) in enumerate(numbers(777)):
        recorder.add(run_step(step, loss, norm))
    found = load_recording(path)  # as the process leaves it: nothing is closed
    assert KeptSteps(found).total == 777
    assert steps_of(found)[-150:] == list(range(627, 777))
    recorder.close()


@pytest.mark.parametrize(
    ("text", "size"),
    [("256MB", 256_000_000), ("2 mb", 2_000_000), ("1.5G", 1_500_000_000), ("all", None)],
)
def test_a_size_is_read(text, size):
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "much", "256 parsecs", "-5MB", "1MB2"])
def test_a_wrong_size_is_refused(text):
    with pytest.raises(WrongValue, match="expected a size such as 256MB, or all"):
        bytes_of(text)


def test_a_watch_refuses_a_wrong_size():
    with pytest.raises(GradscopeError, match="keep is `much`, expected a size"):
        gradscope.watch(keep="much")


def test_a_small_size_is_refused_with_the_least():
    with pytest.raises(WrongValue) as raised:
        bytes_of("10kB")
    assert raised.value.help == "1MB is the least"


def test_captured_steps_without_room_are_dropped_and_counted(tmp_path):
    path = tmp_path / "run.gradscope"
    recorder = recorder_at(path, Room(limit=1_000_000))
    captured = dataclasses.replace(
        small(), steps=(StepRecord(index=0, kind="step", graph=0, loss=1.0, optimizer=None),)
    )
    site = Site(file="f" * 1_000, line=1, function="train", source="")
    large = dataclasses.replace(captured, sites=(site,) * 80)
    for step, (loss, norm) in enumerate(numbers(60)):
        one = run_step(step, loss, norm)
        if step % 3 == 0:  # every second repeats the one before
            same_as = None if step % 6 == 0 else step // 3 - 1
            recording = large if same_as is None else captured
            look = CapturedStep(step=step, order=1, recording=recording, same_as=same_as)
            one = dataclasses.replace(one, captured_steps=(look,))
        recorder.add(one)
    recorder.close()
    assert path.stat().st_size <= 1_000_000
    kept = load_recording(path)
    assert steps_of(kept) == list(range(60))
    (lacking,) = kept.evidence_of(LimitRecord)
    assert 0 < lacking.captures < 20
    assert len(kept.captured_steps) == 20 - lacking.captures
    for one in kept.captured_steps:
        assert len(one.recording.sites) == 80
    told = f"{lacking.captures} captured steps, to keep within 1 MB (--keep)"
    assert dropped_text(training_run(kept)) == told


@pytest.mark.nightly
@pytest.mark.parametrize("parameters", some_on_push([2, 60, 300], {1}))
def test_the_limit_holds_whatever_is_trained(parameters, tmp_path):
    path = tmp_path / "run.gradscope"
    room = Room(limit=1_000_000)
    recorder = recorder_at(path, room, parameters)
    values = numbers(2_500)
    for step in range(0, 2_500, 90):  # events that are kept whole, as long as there is room
        values[step] = (40.0 + step, 80.0 + step)
    for step, (loss, norm) in enumerate(values):
        recorder.add(run_step(step, loss, norm, parameters))
    recorder.close()
    assert path.stat().st_size <= 1_000_000
    kept = load_recording(path)
    assert KeptSteps(kept).total == 2_500
    assert steps_of(kept)[:10] == list(range(10))
    assert steps_of(kept)[-20:] == list(range(2_480, 2_500))
    (lacking,) = kept.evidence_of(LimitRecord)
    assert lacking.events > 0
    assert bool(lacking.norms) == (parameters == 300)
    for span in KeptSteps(kept).spans("loss", [0]):
        losses = [loss for loss, _ in values[span.first : span.first + span.count]]
        assert (span.bucket.lowest, span.bucket.highest) == (min(losses), max(losses))


@pytest.mark.nightly
def test_a_model_that_is_too_large_ends_the_recording_within_the_limit(tmp_path):
    path = tmp_path / "run.gradscope"
    with pytest.raises(GradscopeError, match="it has its largest size, see --keep"):
        recorder_at(path, Room(limit=1_000_000), 20_000)
    assert path.stat().st_size <= 1_000_000
