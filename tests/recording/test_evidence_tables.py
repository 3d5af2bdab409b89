"""Every kind of evidence comes back from a file as it went in."""

import dataclasses
import math
import sqlite3
import types
from contextlib import closing
from typing import Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradscope.recording.evidence import EVIDENCE
from gradscope.recording.evidence.examination import ExaminationRecord
from gradscope.recording.evidence.source import SourceRecord
from gradscope.recording.evidence_tables import evidence_tables
from gradscope.recording.records import Environment, Recording, Shape, TargetRecord
from gradscope.recording.store import load_recording, save_recording

EMPTY = Recording(
    version="1",
    command="inspect",
    environment=Environment(python="3", torch="2", platform="here", device="cpu", threads=1),
    target=TargetRecord(
        name="model",
        model="Model",
        batch="",
        loss="loss",
        optimizer=None,
        mode="train",
        seed=None,
        synthetic_loss=False,
        root="/",
        repository="/",
    ),
    parameters=(),
    modules=(),
    calls=(),
    sites=(),
    nodes=(),
    edges=(),
    steps=(),
    events=(),
    parameter_stats=(),
    tensor_stats=(),
    skipped=(),
)

SCALARS = {
    int: st.integers(-(2**62), 2**62),
    float: st.floats(),
    bool: st.booleans(),
    # Any text but for halves of surrogate pairs, which UTF-8 cannot hold.
    str: st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
    | st.sampled_from(["", "NaN", "None", "null", "'; DROP TABLE x; --", "a\0b", "?", "1:2"]),
    type(None): st.none(),
    Shape: st.builds(
        Shape,
        dims=st.lists(st.integers(0, 2**40), max_size=4).map(tuple),
        dtype=st.sampled_from(["float32", "bfloat16", "float8_e4m3fn"]),
    ),
}

each_kind = pytest.mark.parametrize("kind", EVIDENCE, ids=[kind.__name__ for kind in EVIDENCE])


def values(hint):
    """Return a strategy for what a field's annotation allows."""
    if hint in SCALARS:
        return SCALARS[hint]
    if get_origin(hint) in (Union, types.UnionType):
        return st.one_of(*(values(option) for option in get_args(hint)))
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is tuple:
        first, *rest = get_args(hint)
        if rest == [Ellipsis]:
            return st.lists(values(first), max_size=3).map(tuple)
        return st.tuples(*map(values, (first, *rest)))
    assert dataclasses.is_dataclass(hint), f"{hint} is no type for evidence"
    hints = get_type_hints(hint)
    return st.builds(
        hint, **{field.name: values(hints[field.name]) for field in dataclasses.fields(hint)}
    )


def same(left, right) -> bool:
    """Return whether two values are equal, NaN with NaN, and None with nothing else."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if dataclasses.is_dataclass(left):
        fields = [field.name for field in dataclasses.fields(left)]
        return all(same(getattr(left, name), getattr(right, name)) for name in fields)
    return left == right


def through_table(kind, records):
    """Write records to a table of their own, and read it."""
    table = evidence_tables()[kind]
    with closing(sqlite3.connect(":memory:")) as base:
        base.execute(table.definition)
        rows = [(place, *table.write(record)) for place, record in enumerate(records)]
        base.executemany(table.insertion, rows)
        return tuple(map(table.read, base.execute(table.selection())))


@each_kind
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_evidence_comes_back_as_it_went_in(kind, data):
    records = tuple(data.draw(st.lists(values(kind), max_size=3)))
    assert same(through_table(kind, records), records)


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
    records = tuple(_least(kind) for kind in EVIDENCE)
    recording = dataclasses.replace(EMPTY, evidence=records)
    save_recording(recording, tmp_path / "a.gradscope")
    loaded = load_recording(tmp_path / "a.gradscope")
    assert same(loaded.evidence, records)
    assert all(loaded.evidence_of(type(record)) == (record,) for record in records)


def _least(kind):
    """Return a record with the least that each field allows."""
    hints = get_type_hints(kind)
    return kind(**{field.name: _least_of(hints[field.name]) for field in dataclasses.fields(kind)})


def _least_of(hint):
    if type(None) in get_args(hint):
        return None
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    if get_origin(hint) is tuple:
        return ()
    if hint is Shape:
        return Shape(dims=(), dtype="float32")
    return _least(hint) if dataclasses.is_dataclass(hint) else hint()


def test_a_file_from_before_a_kind_of_evidence_still_loads(tmp_path):
    path = tmp_path / "old.gradscope"
    kept = ExaminationRecord(name="forward", obstacle=None)
    source = SourceRecord(file="/a.py", first=1, lines=("x",))
    save_recording(dataclasses.replace(EMPTY, evidence=(kept, source)), path)
    with closing(sqlite3.connect(path)) as base:
        for kind in EVIDENCE:
            if kind is not ExaminationRecord:
                base.execute(f"DROP TABLE {kind.table}")
        base.commit()
    assert load_recording(path).evidence == (kept,)


def test_half_of_a_surrogate_pair_is_escaped():
    (record,) = through_table(
        SourceRecord, (SourceRecord(file="/\udcff.py", first=1, lines=("'\ud800'",)),)
    )
    assert (record.file, record.lines) == ("/\\udcff.py", ("'\\ud800'",))
