"""Stored batches come back bit for bit, from a recording that was saved again or joined too."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from gradscope.errors import GradscopeError
from gradscope.recording.records import KeptBatch, Shape
from gradscope.recording.rows_in_file import batches_in_memory
from gradscope.recording.store import load_recording, save_recording
from tests.recording.recordings import round_trip, small

PAIR = KeptBatch(
    step=3,
    loader="train_loader",
    structure='["tuple", [["tensor", 0], ["tensor", 1]]]',
    shapes=(Shape(dims=(2, 3), dtype="float32"), Shape(dims=(), dtype="int64")),
    tensors=(b"\0\0\xc0\x7f" * 6, bytes(range(8))),
)
EMPTY = replace(PAIR, step=5, structure='["list", []]', shapes=(), tensors=())


def test_batches_come_back(tmp_path):
    first = round_trip(replace(small(), kept_batches=(PAIR, EMPTY)), tmp_path / "a.gradscope")
    again = round_trip(first, tmp_path / "b.gradscope")
    (tmp_path / "a.gradscope").unlink()
    assert batches_in_memory(again.kept_batches) == (PAIR, EMPTY)
    assert [one.size for one in again.kept_batches] == [32, 0]


def test_recordings_of_earlier_versions_have_none(tmp_path):
    save_recording(small(), tmp_path / "a.gradscope")
    assert load_recording(tmp_path / "a.gradscope").kept_batches == ()


def test_damage_is_an_error_only_where_the_batch_is_read(tmp_path):
    file = tmp_path / "a.gradscope"
    save_recording(replace(small(), kept_batches=(PAIR,)), file)
    with closing(sqlite3.connect(file)) as base, base:
        base.execute("DELETE FROM stored_batch_tensor WHERE id = 1")
    (kept,) = load_recording(file).kept_batches
    assert kept.tensors[0] == PAIR.tensors[0]
    with pytest.raises(GradscopeError, match="damaged"):
        _ = kept.tensors[1]
    file.unlink()
    with pytest.raises(GradscopeError, match="cannot read a batch"):
        _ = kept.tensors[0]
