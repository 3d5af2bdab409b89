import sqlite3
from dataclasses import replace

import pytest

from gradscope.errors import GradscopeError
from gradscope.recording.store import load_recording, save_recording
from gradscope.recording.stored_gradient import StoredGradient, StoredPart
from tests.recording.recordings import round_trip, same, small

WHOLE = StoredGradient(
    step=0,
    parameter=0,
    form="exact",
    shape=(4, 8),
    dtype="float32",
    parts=(StoredPart(b"\0\0\xc0\x7f" * 16), StoredPart(bytes(range(64)))),
)
SPARSE = StoredGradient(
    step=0,
    parameter=1,
    form="sparse",
    shape=(4, 1),
    dtype="float64",
    parts=(StoredPart(bytes(16), b"\1" + bytes(7) + b"\3" + bytes(7)),),
)
EMPTY = replace(WHOLE, parameter=2, shape=(0,), dtype="bfloat16", parts=())


def with_kept(*gradients):
    return replace(small(), stored_gradients=gradients)


def in_memory(gradient):
    return replace(gradient, parts=tuple(gradient.parts))


def test_gradients_come_back_bit_for_bit(tmp_path):
    found = round_trip(with_kept(WHOLE, SPARSE, EMPTY), tmp_path / "a.gradscope").stored_gradients
    assert tuple(map(in_memory, found)) == (WHOLE, SPARSE, EMPTY)
    assert found[0].parts[1] == WHOLE.parts[1] and found[0].parts[-1] == WHOLE.parts[1]
    assert [len(one.parts) for one in found] == [2, 1, 0]


def test_a_recording_that_was_loaded_can_be_saved_again(tmp_path):
    loaded = round_trip(with_kept(WHOLE, SPARSE), tmp_path / "a.gradscope")
    again = round_trip(loaded, tmp_path / "b.gradscope")
    over = round_trip(again, tmp_path / "b.gradscope")
    (tmp_path / "a.gradscope").unlink()
    assert tuple(map(in_memory, over.stored_gradients)) == (WHOLE, SPARSE)


def test_numbers_are_read_only_when_they_are_asked_for(tmp_path):
    file = tmp_path / "a.gradscope"
    loaded = round_trip(with_kept(WHOLE), file)
    with sqlite3.connect(file) as base:
        base.execute("DELETE FROM kept_part WHERE id = 1")
    (one,) = load_recording(file).stored_gradients
    assert one.shape == WHOLE.shape and one.parts[0] == WHOLE.parts[0]
    with pytest.raises(GradscopeError, match="damaged"):
        _ = one.parts[1]
    file.unlink()
    with pytest.raises(GradscopeError, match=r"cannot read a gradient of `.*a\.gradscope`"):
        _ = loaded.stored_gradients[0].parts[0]


def test_recordings_without_the_tables_have_none(tmp_path):
    file = tmp_path / "a.gradscope"
    save_recording(small(), file)
    with sqlite3.connect(file) as base:
        tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master")}
    assert not any(name.startswith("kept") for name in tables)
    assert same(load_recording(file), small())
