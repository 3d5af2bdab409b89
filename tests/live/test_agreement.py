"""`--live` and `--fail-fast` say what the report says, of whole and of thinned recordings."""

import math

import pytest

from gradscope.analysis.live_run import KINDS, LiveRun
from gradscope.analysis.losses import known_losses
from gradscope.analysis.training_run import training_run
from gradscope.recording.finding import at_least
from gradscope.recording.growing import GrowingRecording
from gradscope.recording.meta import header_of
from gradscope.recording.run_recorder import RunRecorder
from gradscope.recording.store import load_recording
from gradscope.recording.thinning.room import Room
from gradscope.rules.engine import judge
from tests.nightly import some_on_push
from tests.rules.kept.kept_runs import repeated, run_steps
from tests.rules.kept.test_kept_steps import TRAININGS

LITTLE = Room(limit=2_000_000, recent=100, chunks=10, around=300)
SAMPLES = dict(list(TRAININGS.items())[:: max(len(TRAININGS) // 10, 1)])


def followed(recording, path, room, every):
    """The state of a display that read a recording every so many steps while it was written."""
    recorder = RunRecorder(path, header_of(recording), room)
    growing, live = GrowingRecording(path, KINDS), LiveRun("train.py")
    for turn, one in enumerate(run_steps(recording)):
        recorder.add(one)
        if turn % every == 0:
            live.add(growing.read())
    recorder.close()
    live.add(growing.read())
    return live


@pytest.mark.parametrize("room", [None, LITTLE], ids=["whole", "thinned"])
@pytest.mark.parametrize("name", some_on_push(SAMPLES, 12))
def test_the_display_ends_with_the_numbers_of_the_report(name, room, tmp_path):
    made = TRAININGS[name]()
    short = made if hasattr(made, "steps") else made.recording()
    whole = repeated(short, -(-400 // len(short.steps)))
    live = followed(whole, tmp_path / "run.gradscope", room, every=7)
    run = training_run(load_recording(tmp_path / "run.gradscope"))
    assert live.is_over and run.is_complete
    made = [step.index for step in whole.steps if step.optimizer is not None]
    assert live.steps == len(made)
    if len(made) == len(whole.steps):
        assert run.step_count == len(made)
    assert len(live.tracks) == sum(one.steps > 0 for one in run.optimizers)
    losses = dict(known_losses(whole))
    norms = {one.step: one.grad_norm for one in training_run(whole).steps}
    shown = [track.curves["loss"].last for track in live.tracks.values()]
    if losses:
        assert any(loss == pytest.approx(losses[max(losses)], nan_ok=True) for loss in shown)
    highest = [
        track.curves["norm"].course(60).highest.value
        for track in live.tracks.values()
        if track.curves["norm"].course(60).highest is not None
    ]
    finite = [norm for norm in norms.values() if norm is not None and math.isfinite(norm)]
    if highest and finite:
        assert max(highest) == pytest.approx(max(finite))


FAILING = {
    name: TRAININGS[name]
    for name in (
        "skipped-step-error",
        "gradient-spike-factor",
        "unscaled-accumulation-share",
        "training-in-eval-mode-share",
        "backward-without-step-zeroed_passes",
        "loss-history-kept-error_steps",
    )
}


def failing(path):
    """The rules and lines for which `--fail-fast --fail-level warning` stops the script."""
    return {
        (one.rule, one.location and one.location.line)
        for one in judge(load_recording(path)).findings
        if one.severity in at_least("warning")
    }


@pytest.mark.nightly
@pytest.mark.parametrize("room", [None, LITTLE], ids=["whole", "thinned"])
@pytest.mark.parametrize("name", some_on_push(FAILING, [0, 1]))
def test_what_stops_a_run_is_in_its_report(name, room, tmp_path):
    made = FAILING[name]()
    short = made if hasattr(made, "steps") else made.recording()
    whole = repeated(short, -(-400 // len(short.steps)))
    path = tmp_path / "run.gradscope"
    recorder = RunRecorder(path, header_of(whole), room)
    early = set()
    for turn, one in enumerate(run_steps(whole)):
        recorder.add(one)
        if turn and not turn % 100:
            early |= failing(path)
    recorder.close()
    assert early
    assert early <= failing(path)
