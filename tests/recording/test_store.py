import dataclasses
import math
import sqlite3

import pytest
from hypothesis import HealthCheck, example, given, settings

from gradscope.errors import GradscopeError
from gradscope.recording.paths import APPLICATION_ID, FORMAT
from gradscope.recording.records import EdgeRecord, EventRecord, Site, StepRecord
from gradscope.recording.store import load_recording, save_recording
from gradscope.recording.table import BATCH
from tests.recording.recordings import (
    gradient,
    round_trip,
    same,
    small,
    stat,
    with_stats,
)
from tests.recording.strategies import RECORDINGS


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(recording=RECORDINGS)
@example(recording=small())
def test_recording_comes_back_as_it_was(recording, tmp_path):
    assert same(round_trip(recording, tmp_path / "a.gradscope"), recording)


@pytest.mark.parametrize("norm", [math.nan, math.inf, -math.inf, 0.0, 5e-324, 1.7e308, 1 / 3])
def test_every_number_survives(norm, tmp_path):
    recording = with_stats(stat(0, 0, gradient(norm), update_norm=norm))
    (found,) = round_trip(recording, tmp_path / "a.gradscope").parameter_stats
    assert found.gradient.norm == pytest.approx(norm, rel=0, abs=0, nan_ok=True)
    assert found.update_norm == pytest.approx(norm, rel=0, abs=0, nan_ok=True)


def test_missing_gradient_stays_none_beside_zero_and_nan(tmp_path):
    recording = with_stats(
        stat(0, 0, None), stat(0, 0, gradient(0.0), 0.0), stat(0, 0, gradient(math.nan), math.nan)
    )
    missing, zero, broken = round_trip(recording, tmp_path / "a.gradscope").parameter_stats
    assert missing.gradient is None and missing.update_norm is None
    assert missing.reason == "nothing used it"
    assert zero.gradient.norm == 0.0 and zero.update_norm == 0.0
    assert math.isnan(broken.gradient.norm) and math.isnan(broken.update_norm)


def test_half_of_a_surrogate_pair_is_escaped(tmp_path):
    site = Site(file="/tmp/\udc80.py", line=1, function="f", source="")
    recording = dataclasses.replace(small(), sites=(site,))
    assert round_trip(recording, tmp_path / "a.gradscope").sites[0].file == "/tmp/\\udc80.py"


def test_cells_are_readable_in_any_sqlite_tool(tmp_path):
    path = tmp_path / "a.gradscope"
    save_recording(small(), path)
    base = sqlite3.connect(path)
    rows = base.execute("SELECT name, shape, aliases, numel FROM parameter").fetchall()
    assert rows == [("weight", "float32[4, 8]", '["tied.weight"]', 32)]
    assert base.execute("SELECT name, norm FROM parameter_gradient").fetchall() == [("weight", 2.0)]
    assert base.execute("SELECT loss FROM step").fetchall() == [("NaN",)]
    base.close()


def test_file_is_one_and_known_by_its_application_id(tmp_path):
    path = tmp_path / "a.gradscope"
    save_recording(small(), path)
    assert list(tmp_path.iterdir()) == [path]
    base = sqlite3.connect(path)
    assert base.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert base.execute("PRAGMA user_version").fetchone() == (FORMAT,)
    base.close()


def test_tables_have_the_names_of_the_interface(tmp_path):
    path = tmp_path / "a.gradscope"
    save_recording(small(), path)
    base = sqlite3.connect(path)
    tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master")}
    base.close()
    assert tables >= {
        "meta", "parameter", "module", "module_call", "site", "node", "edge", "step", "event",
        "parameter_stat", "tensor_stat", "skipped",
    }  # fmt: skip


def test_events_of_an_earlier_version_belong_to_no_optimizer(tmp_path):
    path = tmp_path / "old.gradscope"
    event = EventRecord(step=0, order=0, kind="backward", seconds=0.5, site=None, numbers=())
    named = dataclasses.replace(event, optimizer=1, subject="opt")
    save_recording(dataclasses.replace(small(), events=(named,)), path)
    assert load_recording(path).events == (named,)
    base = sqlite3.connect(path)
    base.execute("ALTER TABLE event DROP COLUMN optimizer")
    base.execute("ALTER TABLE event DROP COLUMN subject")
    base.commit()
    base.close()
    assert load_recording(path).events == (event,)


def test_existing_file_is_kept_without_force(tmp_path):
    path = tmp_path / "a.gradscope"
    path.write_text("precious")
    with pytest.raises(GradscopeError, match="exists"):
        save_recording(small(), path)
    assert path.read_text() == "precious"
    save_recording(small(), path, force=True)
    assert load_recording(path).target.model == "Linear"


def test_failed_save_leaves_the_old_file_whole(tmp_path):
    path = tmp_path / "a.gradscope"
    save_recording(small(), path)
    unwritable = dataclasses.replace(small(), edges=(EdgeRecord(source=2**70, target=0, slot=0),))
    with pytest.raises(OverflowError):
        save_recording(unwritable, path, force=True)
    assert list(tmp_path.iterdir()) == [path]
    assert load_recording(path).edges == ()


@pytest.mark.parametrize(
    "name", ["with space.gradscope", "q?a=b#c%20.gradscope", "ünï.gradscope", "file:x"]
)
def test_any_file_name_will_do(name, tmp_path):
    assert round_trip(small(), tmp_path / name).target.name == "model.py"


def test_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(GradscopeError, match="missing"):
        save_recording(small(), tmp_path / "missing" / "a.gradscope")


def other_database(path):
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE t (x)")
    base.commit()
    base.close()


def newer_format(path):
    save_recording(small(), path)
    base = sqlite3.connect(path)
    base.execute(f"PRAGMA user_version = {FORMAT + 1}")
    base.close()


def torn(path):
    save_recording(small(), path)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


def unreadable_cell(path):
    save_recording(small(), path)
    base = sqlite3.connect(path)
    base.execute("UPDATE parameter SET shape = 'square'")
    base.commit()
    base.close()


def gap(path):
    save_recording(small(), path)
    base = sqlite3.connect(path)
    base.execute("UPDATE parameter SET shape = NULL")
    base.commit()
    base.close()


def unknown_word(path):
    step = StepRecord(index=0, kind="run", graph=None, loss=1.0, optimizer="SGD(lr=0.1)")
    save_recording(dataclasses.replace(small(), steps=(step,)), path)
    base = sqlite3.connect(path)
    base.execute("UPDATE step_norms SET reach = x'09'")
    base.commit()
    base.close()


def lost_meta(path):
    save_recording(small(), path)
    base = sqlite3.connect(path)
    base.execute("DELETE FROM meta")
    base.commit()
    base.close()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "directory"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_text("hello, I am no database"), "is not a recording"),
        (lambda path: path.write_bytes(b"SQLite format 3\x00"), "recording|cannot read"),
        (other_database, "another program"),
        (newer_format, f"format {FORMAT + 1}"),
        (torn, "cannot read"),
        (unreadable_cell, "`square` is not a shape"),
        (gap, "damaged"),
        (unknown_word, "norms are damaged"),
        (lost_meta, "`version` is missing"),
    ],
)
def test_bad_file_is_reported_in_one_line(make, told, tmp_path):
    path = tmp_path / "a.gradscope"
    make(path)
    with pytest.raises(GradscopeError, match=told) as raised:
        load_recording(path)
    assert str(path) in raised.value.what
    assert "\n" not in raised.value.what


def test_numbers_of_many_events_stay_with_their_event(tmp_path):
    # More than are read at once, some without numbers and some that are not finite.
    events = tuple(
        EventRecord(
            step=position,
            order=0,
            kind="backward",
            seconds=0.0,
            site=None,
            numbers=(("loss", math.nan if position % 7 == 0 else float(position)), ("rows", 4.0))[
                : position % 3
            ],
        )
        for position in range(BATCH + 10)
    )
    recording = dataclasses.replace(small(), events=events)
    assert same(round_trip(recording, tmp_path / "a.gradscope").events, events)
