"""One recording of a training that was resumed from a checkpoint."""

import dataclasses

import pytest

from gradscope.analysis.kept_steps import KeptSteps
from gradscope.analysis.loop_windows import windows
from gradscope.recording.continued_positions import Positions
from gradscope.recording.continued_recording import continued
from gradscope.recording.evidence.failures import CustomFunctionRecord
from gradscope.recording.evidence.summaries import StepSummary
from gradscope.recording.evidence.training import (
    ContinuedRun,
    RoundedUpdate,
    RunEnding,
    TrainedOptimizer,
)
from gradscope.recording.norm_table import norms_of
from gradscope.recording.paths import continuation_of
from gradscope.recording.records import Site
from gradscope.recording.run_recorder import RunStep
from gradscope.recording.store import absorb_continuation, load_recording, save_recording
from tests.nightly import some_on_push
from tests.recording.recordings import same, small
from tests.recording.test_thinning import (
    ROOM,
    events_of,
    numbers,
    recorder_at,
    repeating,
    run_step,
)

VALUES = numbers(3_000)
LINES = [
    Site(file="/tmp/train.py", line=line, function="fit", source=f"line {line}") for line in (3, 5)
]
ADAM = TrainedOptimizer(
    class_name="Adam", family="adaptive", name="opt", site=0, parameters=(0, 1), replaced=None
)


def write(path, values, *, room=None, names=("p0", "p1"), lines=LINES, start=None, ending=None):
    """Write a training; norms of p0 are those of `values`, and those of p1 one larger."""
    recorder = recorder_at(path, room, parameters=0)
    first = small().parameters[0]
    recorder.add(
        RunStep(
            parameters=tuple(
                dataclasses.replace(first, index=place, name=name)
                for place, name in enumerate(names)
            ),
            sites=tuple(lines),
            optimizers=((0, dataclasses.replace(ADAM, site=lines.index(LINES[0]))),),
        )
    )
    if start is not None:
        recorder.continue_at(start)
    for step, (loss, norm) in enumerate(values):
        one = run_step(step, loss, norm)
        site = lines.index(LINES[1])
        one = dataclasses.replace(
            one,
            events=tuple(dataclasses.replace(e, site=site) for e in events_of(step, loss, norm)),
            norms=[
                (place, "gradient", norm + int(name[1]), 2.0, None)
                for place, name in enumerate(names)
            ],
            rounded=(RoundedUpdate(step=step, optimizer=0, parameter=0, moving=9, unchanged=step),),
        )
        recorder.add(one)
    recorder.close(ending)


def facts(recording):
    """What a recording says, by names instead of indices."""
    names = [one.name for one in recording.parameters]
    return (
        [(one.index, one.loss) for one in recording.steps],
        [
            (one.step, one.kind, recording.sites[one.site].line, one.numbers, one.optimizer)
            for one in recording.events
        ],
        sorted((one.step, names[one.parameter], one.gradient.norm) for one in norms_of(recording)),
    )


def test_parts_are_one_training_whatever_the_order_of_their_records(tmp_path):
    whole, parts = tmp_path / "whole.gradscope", tmp_path / "run.gradscope"
    write(whole, VALUES[:20])
    # Behind the checkpoint at step 12, the first part made other steps before it was killed.
    write(parts, [*VALUES[:12], *VALUES[100:105]], ending=RunEnding(kind="raised"))
    write(continuation_of(parts), VALUES[12:20], start=12, names=("p1", "p0"), lines=LINES[::-1])
    found = load_recording(parts)
    assert facts(found) == facts(load_recording(whole))
    assert [one.name for one in found.parameters] == ["p0", "p1"]
    assert found.sites == tuple(LINES)
    assert found.evidence_of(TrainedOptimizer) == (dataclasses.replace(ADAM, parameters=(1, 0)),)
    rounded = found.evidence_of(RoundedUpdate)
    assert [(one.step, one.parameter) for one in rounded] == [
        *((step, 0) for step in range(12)),
        *((step, 1) for step in range(12, 20)),
    ]
    assert found.evidence_of(ContinuedRun) == (ContinuedRun(step=12),)
    assert not found.evidence_of(RunEnding)


def test_file_of_the_second_part_is_absorbed_and_joining_again_changes_nothing(tmp_path):
    path = tmp_path / "run.gradscope"
    write(path, VALUES[:12])
    write(continuation_of(path), VALUES[12:20], start=10)
    second = load_recording(continuation_of(path))
    found = load_recording(path)
    absorb_continuation(path)
    assert [one.name for one in tmp_path.iterdir()] == ["run.gradscope"]
    assert facts(load_recording(path)) == facts(found)
    assert same(facts(continued(found, second, 10)), facts(found))


def test_part_that_has_not_begun_is_left_out(tmp_path):
    path = tmp_path / "run.gradscope"
    write(path, VALUES[:12])
    before = facts(load_recording(path))
    continuation_of(path).touch()
    assert facts(load_recording(path)) == before
    continuation_of(path).unlink()
    write(continuation_of(path), [])
    assert facts(load_recording(path)) == before


def test_new_recording_is_not_joined_with_a_part_of_another(tmp_path):
    path = tmp_path / "run.gradscope"
    write(path, VALUES[:12])
    write(continuation_of(path), VALUES[12:20], start=12)
    save_recording(small(), path, force=True)
    assert len(load_recording(path).steps) == 1


@pytest.mark.parametrize("start", some_on_push([3_000, 2_900, 1_234], {2}))
def test_long_parts_are_joined_with_their_summaries(tmp_path, start):
    path = tmp_path / "run.gradscope"
    write(path, VALUES, room=ROOM)
    write(continuation_of(path), VALUES, room=ROOM, start=start, names=("p1", "p0"))
    found = load_recording(path)
    kept = KeptSteps(found)
    known = {step.index for step in found.steps}
    known.update(*(range(one.first, one.first + one.count) for one in kept.summaries))
    assert known == set(range(start + 3_000))
    assert kept.total == start + 3_000
    losses = dict(enumerate(loss for loss, _ in [*VALUES[:start], *VALUES]))
    for span in kept.spans("loss", [0]):
        if span.first + span.count <= start or span.first >= start:
            own = [losses[step] for step in range(span.first, span.first + span.count)]
            assert span.bucket.lowest == min(own)
            assert losses[int(span.bucket.lowest_at)] == min(own)
    for one in found.evidence_of(StepSummary):
        assert (one.first < start) == (one.first + one.count <= start)
    # Those of a summary that ends before the steps that stand for it are not counted.
    cut = sum(one.count for one in kept.summaries if not one.block)
    total = start + 3_000 - cut
    assert sum(window.count for window in windows(found)) == pytest.approx(total, abs=103)


def test_steps_that_no_part_has_are_a_gap(tmp_path):
    path = tmp_path / "run.gradscope"
    write(path, VALUES[:10])
    write(continuation_of(path), VALUES[:5], start=20)
    found = load_recording(path)
    assert [step.index for step in found.steps] == [*range(10), *range(20, 25)]
    assert KeptSteps(found).resumed == {20}


def test_the_whole_has_the_file_and_the_untimed_steps_of_both_parts(tmp_path):
    path = tmp_path / "run.gradscope"
    for file, start, last in ((path, None, 9), (continuation_of(path), 6, 4)):
        recorder = recorder_at(file, None)
        if start is not None:
            recorder.continue_at(start)
        recorder.add(RunStep(sites=tuple(LINES), optimizers=((0, ADAM),)))
        recorder.add(run_step(0, 1.0, 1.0))
        recorder.repeat(repeating(1, last - 1))
        recorder.add(run_step(last, 1.0, 1.0))
        recorder.close()
    whole = load_recording(path)
    assert whole.file == str(path)
    assert whole.untimed == (range(1, 6), range(7, 10))
    assert [one.index for one in whole.steps] == list(range(11))


def test_records_of_the_second_part_refer_to_the_lines_and_parameters_of_the_whole():
    positions = Positions(
        start=4,
        seconds=1.0,
        parameters=(1, 0),
        modules=(),
        sites=(10, 11, 12, 13, 14),
        optimizers=(2, 3),
        scopes=(),
    )
    optimizer = dataclasses.replace(
        ADAM,
        site=0,
        replaced=0,
        joined=1,
        rested=1,
        rate_function=2,
        plateau_site=3,
        schedule_site=4,
        undecayed=(0,),
        name_filters=(("bias", 4),),
    )
    assert positions.optimizer(optimizer) == dataclasses.replace(
        optimizer,
        site=10,
        parameters=(1, 0),
        replaced=2,
        joined=3,
        rested=11,
        rate_function=12,
        plateau_site=13,
        schedule_site=14,
        undecayed=(1,),
        name_filters=(("bias", 14),),
    )
    function = CustomFunctionRecord(
        name="Swish",
        operation="SwishBackward",
        outcome="wrong",
        reason=None,
        applied=0,
        backward=3,
        inputs=(),
    )
    assert positions.evidence(function) == dataclasses.replace(function, applied=10, backward=13)
