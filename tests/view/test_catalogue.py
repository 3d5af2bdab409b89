"""What the list says of recordings: their state, their losses and their findings."""

import math
from dataclasses import replace

import pytest

from gradscope.cli.running import judged
from gradscope.errors import GradscopeError
from gradscope.recording.evidence.training import RunEnding
from gradscope.recording.overview import course_of, read_overview
from gradscope.recording.store import load_recording
from gradscope.rules.settings import DEFAULT_SETTINGS
from gradscope.view.catalogue import Catalogue, Library, state_of
from tests.recording.test_thinning import ROOM, numbers, written
from tests.view.conftest import begun_run, written_run


def reports_of(paths):
    return [judged(load_recording(path), DEFAULT_SETTINGS) for path in paths]


def state(path, silence=0.0):
    return state_of(read_overview(path), written=1e9 - silence, now=1e9)


def test_a_run_is_running_until_it_is_silent(tmp_path):
    path = tmp_path / "run.gradscope"
    recorder = begun_run(path)
    assert state(path).kind == state(path, 9.9).kind == "running"
    assert state(path, 10.1).kind == "silent"
    assert state(path, 100_000).text.startswith("silent since 2001-09-")
    recorder.close(RunEnding(kind="returned", code=0))
    assert state(path, 1e6).kind == "ended"


def test_a_run_of_slow_steps_may_be_silent_for_longer(tmp_path):
    overview = read_overview(written_run(tmp_path / "run.gradscope"))
    header = replace(overview.header, finished=False)
    slow = replace(overview, header=header, ending=None, steps=10, seconds=300.0)
    assert state_of(slow, written=0, now=599).kind == "running"
    assert state_of(slow, written=0, now=601).kind == "silent"


@pytest.mark.parametrize(
    ("ending", "kind", "text"),
    [
        (RunEnding(kind="returned", code=0), "ended", "ended"),
        (RunEnding(kind="stopped", message="--stop-after 3"), "ended", "--stop-after 3"),
        (RunEnding(kind="raised", code=1, exception="ValueError", message="no"), "failed", "no"),
        (RunEnding(kind="interrupted", code=130), "failed", "Ctrl-C"),
        (RunEnding(kind="exited", code=3), "failed", "sys.exit(3)"),
    ],
)
def test_how_a_run_ended_is_its_state(ending, kind, text, tmp_path):
    found = state(written_run(tmp_path / "run.gradscope", ending=ending))
    assert found.kind == kind
    assert text in found.text


def test_the_overview_has_the_losses_of_the_recording(tmp_path):
    overview = read_overview(written_run(tmp_path / "run.gradscope", (4.0, 2.0, 1.0)))
    assert (overview.steps, overview.is_run) == (3, True)
    assert (overview.losses.first, overview.losses.last) == (4.0, 1.0)
    assert [value for _, value in overview.losses.points] == [4.0, 2.0, 1.0]


def test_the_overview_of_a_long_run_has_all_of_its_length(tmp_path):
    values = numbers(3_000)
    written(tmp_path / "kept.gradscope", ROOM, values)
    overview = read_overview(tmp_path / "kept.gradscope")
    assert overview.steps == 3_000
    assert (overview.losses.first, overview.losses.last) == (values[0][0], values[-1][0])
    wanted = math.fsum(loss for loss, _ in values) / 3_000
    points = overview.losses.points
    found = math.fsum(value for _, value in points) / len(points)
    assert found == pytest.approx(wanted, rel=0.05)


def test_a_course_breaks_where_a_loss_is_not_finite():
    course = course_of({step: math.nan if step == 50 else 1.0 for step in range(120)})
    assert len(course.points) == 60
    assert sum(math.isnan(value) for _, value in course.points) == 1
    assert course_of({}) is None
    assert course_of({7: 2.0}).points == ((0.0, 2.0),)


def test_a_recording_is_read_again_only_when_it_changed(tmp_path, monkeypatch):
    path = tmp_path / "run.gradscope"
    recorder = begun_run(path, (1.0,))
    read = []
    monkeypatch.setattr(
        "gradscope.view.catalogue.read_overview",
        lambda one: (read.append(one), read_overview(one))[1],
    )
    catalogue = Catalogue(Library([tmp_path]), reports_of)
    for _ in range(5):
        (listed,) = catalogue.listed()
    assert listed.steps == 1 and len(read) == 1
    recorder.close(RunEnding(kind="returned", code=0))
    (listed,) = catalogue.listed()
    assert listed.state.kind == "ended" and len(read) == 2


def test_recordings_are_judged_one_after_the_other(tmp_path):
    for name in "abc":
        written_run(tmp_path / f"{name}.gradscope")
    catalogue = Catalogue(Library([tmp_path]), reports_of)
    assert [one.judged for one in catalogue.listed()] == [None] * 3
    for count in (1, 2, 3):
        assert catalogue.judge_one()
        assert sum(one.judged is not None for one in catalogue.listed()) == count
    assert not catalogue.judge_one()


def test_a_growing_recording_is_judged_again_after_a_while(tmp_path):
    times = [1e9]
    begun_run(tmp_path / "a.gradscope", (1.0,)).abandon()
    catalogue = Catalogue(Library([tmp_path]), reports_of, clock=lambda: times[0])
    assert catalogue.judge_one() and not catalogue.judge_one()
    (tmp_path / "a.gradscope").touch()
    assert not catalogue.judge_one()
    times[0] += 21
    assert catalogue.judge_one()


def test_a_file_that_cannot_be_read_is_listed_with_the_reason(tmp_path):
    whole = written_run(tmp_path / "cut.gradscope").read_bytes()
    (tmp_path / "cut.gradscope").write_bytes(whole[: len(whole) // 3])
    (tmp_path / "text.gradscope").write_text("hello")
    (tmp_path / "empty.gradscope").touch()
    catalogue = Catalogue(Library([tmp_path]), reports_of)
    found = {one.entry.name: one.state for one in catalogue.listed()}
    assert {state.kind for state in found.values()} == {"unreadable"}
    assert "not a recording" in found["text.gradscope"].text
    assert "is empty" in found["empty.gradscope"].text
    assert not catalogue.judge_one()


def test_what_judging_raises_is_left_to_the_page(tmp_path):
    written_run(tmp_path / "a.gradscope")

    def broken(paths):
        raise GradscopeError("no")

    catalogue = Catalogue(Library([tmp_path]), broken)
    assert catalogue.judge_one()
    assert not catalogue.judge_one()
