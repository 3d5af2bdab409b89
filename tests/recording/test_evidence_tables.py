"""Every kind of evidence survives a round trip through a file."""

import dataclasses
import sqlite3
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradscope.recording.evidence import EVIDENCE
from gradscope.recording.evidence.batches import ProbeRecord
from gradscope.recording.evidence.training import SourceRecord, TrainedOptimizer
from gradscope.recording.meta import header_of
from gradscope.recording.records import CapturedStep
from gradscope.recording.store import load_recording, save_recording
from gradscope.recording.table import tables_in
from gradscope.recording.tables import evidence_tables
from gradscope.recording.writer import RecordingWriter
from tests.recording.recordings import same, small
from tests.recording.strategies import least, values

each_kind = pytest.mark.parametrize("kind", EVIDENCE, ids=[kind.__name__ for kind in EVIDENCE])


def through_table(kind, records):
    """Write records to a table of their own, and read it."""
    table = evidence_tables()[kind]
    with closing(sqlite3.connect(":memory:")) as base:
        base.execute(table.definition)
        rows = [(position, *table.write(record)) for position, record in enumerate(records)]
        base.executemany(table.insertion, rows)
        return table.records(base)


@each_kind
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_evidence_comes_back_as_it_went_in(kind, data):
    records = tuple(data.draw(st.lists(values(kind), max_size=3)))
    assert same(through_table(kind, records), records)


@each_kind
def test_fields_with_a_default_may_be_missing_in_a_file(kind):
    table, record = evidence_tables()[kind], least(kind)
    fields = {one.name: one.default for one in dataclasses.fields(kind)}
    later = {name for name in fields if fields[name] is not dataclasses.MISSING}
    with closing(sqlite3.connect(":memory:")) as base:
        base.execute(table.definition)
        base.execute(table.insertion, (0, *table.write(record)))
        for name in later:
            base.execute(f'ALTER TABLE {table.name} DROP COLUMN "{name}"')
        defaults = {name: fields[name] for name in later}
        assert table.records(base) == (dataclasses.replace(record, **defaults),)


@each_kind
def test_a_kind_of_evidence_is_a_frozen_record_with_a_table(kind):
    assert dataclasses.is_dataclass(kind)
    assert kind.__dataclass_params__.frozen
    assert all(field.kw_only for field in dataclasses.fields(kind))
    assert "__slots__" in vars(kind)
    assert kind.table.isidentifier()


def test_tables_of_evidence_have_names_of_their_own():
    names = [kind.table for kind in EVIDENCE]
    assert len(set(names)) == len(names)


def test_kinds_of_evidence_stand_in_the_order_of_their_names():
    names = [kind.__name__ for kind in EVIDENCE]
    assert names == sorted(names)


def test_a_file_holds_evidence_of_every_kind(tmp_path):
    records = tuple(least(kind) for kind in EVIDENCE)
    recording = dataclasses.replace(small(), evidence=records)
    save_recording(recording, tmp_path / "a.gradscope")
    loaded = load_recording(tmp_path / "a.gradscope")
    assert same(loaded.evidence, records)
    assert all(loaded.evidence_of(type(record)) == (record,) for record in records)


def test_a_file_from_before_a_kind_of_evidence_still_loads(tmp_path):
    path = tmp_path / "old.gradscope"
    kept = ProbeRecord(name="forward", skip_reason=None)
    source = SourceRecord(file="/a.py", first=1, lines=("x",))
    save_recording(dataclasses.replace(small(), evidence=(kept, source)), path)
    with closing(sqlite3.connect(path)) as base:
        for kind in EVIDENCE:
            if kind is not ProbeRecord:
                base.execute(f"DROP TABLE IF EXISTS {kind.table}")
        base.commit()
    assert load_recording(path).evidence == (kept,)


def test_half_of_a_surrogate_pair_is_escaped():
    (record,) = through_table(
        SourceRecord, (SourceRecord(file="/\udcff.py", first=1, lines=("'\ud800'",)),)
    )
    assert (record.file, record.lines) == ("/\\udcff.py", ("'\\ud800'",))


def test_a_column_that_an_earlier_file_lacks_is_read_as_the_default(tmp_path):
    path = tmp_path / "a.gradscope"
    optimizer = dataclasses.replace(least(TrainedOptimizer), joined=3)
    whole = dataclasses.replace(small(), evidence=(optimizer,))
    save_recording(whole, path)
    assert load_recording(path).evidence == (optimizer,)
    with closing(sqlite3.connect(path)) as base:
        base.execute(f"ALTER TABLE {TrainedOptimizer.table} DROP COLUMN joined")
        base.execute("ALTER TABLE parameter DROP COLUMN is_shard")
        base.commit()
    earlier = load_recording(path)
    assert earlier.evidence == (dataclasses.replace(optimizer, joined=None),)
    assert [one.is_shard for one in earlier.parameters] == [False] * len(whole.parameters)


def test_a_kind_of_evidence_takes_a_table_once_there_is_some(tmp_path):
    path = tmp_path / "a.gradscope"
    probe = ProbeRecord(name="forward", skip_reason=None)
    step = CapturedStep(step=0, order=0, recording=dataclasses.replace(small(), evidence=(probe,)))
    save_recording(dataclasses.replace(small(), captured_steps=(step,)), path)
    with closing(sqlite3.connect(path)) as base:
        present = tables_in(base)
    assert f"look_{ProbeRecord.table}" in present
    assert not {ProbeRecord.table, SourceRecord.table, f"look_{SourceRecord.table}"} & present
    loaded = load_recording(path)
    assert loaded.evidence == ()
    assert loaded.captured_steps[0].recording.evidence == (probe,)


def test_evidence_is_written_after_a_transaction_that_failed_with_its_first(tmp_path):
    path = tmp_path / "a.gradscope"
    source = SourceRecord(file="/a.py", first=1, lines=("x",))
    table = evidence_tables()[SourceRecord]
    with RecordingWriter(path, header_of(small())) as writer:
        with pytest.raises(ZeroDivisionError), writer.transaction():
            writer.add(table, [source])
            raise ZeroDivisionError
        with writer.transaction():
            writer.add(table, [source])
    assert load_recording(path).evidence == (source,)
