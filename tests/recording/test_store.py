import dataclasses
import math
import sqlite3
import string

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gradscope.errors import GradscopeError
from gradscope.recording.records import (
    CutRecord,
    EdgeRecord,
    Environment,
    EventRecord,
    GradientStat,
    InputStat,
    ModuleCallRecord,
    ModuleRecord,
    NodeRecord,
    ParameterRecord,
    ParameterStat,
    Recording,
    Shape,
    Site,
    Skipped,
    StepRecord,
    TargetRecord,
    TensorRef,
    TensorStat,
)
from gradscope.recording.store import load_recording, save_recording
from gradscope.recording.writer import APPLICATION_ID, FORMAT

# Any text but for halves of surrogate pairs, which UTF-8 cannot hold.
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
COUNTS = st.integers(0, 2**40)
MAYBE_COUNTS = st.none() | COUNTS
NUMBERS = st.floats()
NAMES = st.lists(st.text(max_size=20), max_size=3).map(tuple)
SHAPES = st.builds(
    Shape,
    dims=st.lists(COUNTS, max_size=4).map(tuple),
    dtype=st.text(string.ascii_lowercase + string.digits + "_", min_size=1),
)
REFS = st.builds(TensorRef, node=COUNTS, slot=COUNTS)
GRADIENTS = st.none() | st.builds(
    GradientStat,
    numel=COUNTS,
    norm=NUMBERS,
    absolute_maximum=NUMBERS,
    zero_share=NUMBERS,
    nonfinite=COUNTS,
    sampled=st.booleans(),
    lowest_exponent=st.integers(-1100, 1100),
    magnitudes=st.lists(COUNTS, max_size=5).map(tuple),
)


def numbered(record, **fields):
    """Lists of records whose `index` is their place."""
    unnumbered = st.lists(st.fixed_dictionaries(fields), max_size=3)
    return unnumbered.map(
        lambda rows: tuple(record(index=place, **row) for place, row in enumerate(rows))
    )


def listed(record, **fields):
    return st.lists(st.builds(record, **fields), max_size=3).map(tuple)


RECORDINGS = st.builds(
    Recording,
    version=TEXTS,
    command=TEXTS,
    environment=st.builds(
        Environment,
        python=TEXTS,
        torch=TEXTS,
        platform=TEXTS,
        device=TEXTS,
        threads=COUNTS,
    ),
    target=st.builds(
        TargetRecord,
        name=TEXTS,
        model=TEXTS,
        batch=TEXTS,
        loss=TEXTS,
        optimizer=st.none() | TEXTS,
        mode=TEXTS,
        seed=st.none() | st.integers(-(2**63), 2**64 - 1),
        synthetic_loss=st.booleans(),
        root=TEXTS,
        repository=TEXTS,
    ),
    parameters=numbered(
        ParameterRecord,
        name=TEXTS,
        aliases=NAMES,
        module=COUNTS,
        shape=SHAPES,
        device=TEXTS,
        numel=COUNTS,
        requires_grad=st.booleans(),
        optimizer_group=MAYBE_COUNTS,
    ),
    modules=numbered(
        ModuleRecord,
        path=TEXTS,
        aliases=NAMES,
        class_name=TEXTS,
        parent=MAYBE_COUNTS,
        in_model=st.booleans(),
        training=st.booleans(),
    ),
    calls=numbered(
        ModuleCallRecord,
        graph=COUNTS,
        module=COUNTS,
        call=COUNTS,
        parent=MAYBE_COUNTS,
        site=MAYBE_COUNTS,
        inputs=st.lists(REFS, max_size=3).map(tuple),
        outputs=st.lists(REFS, max_size=3).map(tuple),
    ),
    sites=listed(Site, file=TEXTS, line=COUNTS, function=TEXTS, source=TEXTS),
    nodes=numbered(
        NodeRecord,
        graph=COUNTS,
        operation=TEXTS,
        kind=st.sampled_from(["operation", "view", "parameter", "leaf"]),
        depth=COUNTS,
        sequence=MAYBE_COUNTS,
        module_call=MAYBE_COUNTS,
        site=MAYBE_COUNTS,
        outputs=st.lists(st.none() | SHAPES, max_size=3).map(tuple),
        parameter=MAYBE_COUNTS,
        same_as=st.none() | REFS,
    ),
    edges=listed(EdgeRecord, source=COUNTS, target=COUNTS, slot=COUNTS),
    steps=listed(
        StepRecord,
        index=COUNTS,
        kind=st.sampled_from(["step", "probe", "run"]),
        graph=MAYBE_COUNTS,
        loss=st.none() | NUMBERS,
        optimizer=st.none() | TEXTS,
    ),
    events=listed(
        EventRecord,
        step=COUNTS,
        order=COUNTS,
        kind=TEXTS,
        seconds=NUMBERS,
        site=MAYBE_COUNTS,
        numbers=st.dictionaries(st.text(), NUMBERS, max_size=3).map(lambda d: tuple(d.items())),
        optimizer=MAYBE_COUNTS,
        subject=TEXTS,
    ),
    parameter_stats=listed(
        ParameterStat,
        step=COUNTS,
        parameter=COUNTS,
        reach=st.sampled_from(["gradient", "zero", "none", "frozen"]),
        gradient=GRADIENTS,
        reason=st.none() | TEXTS,
        weight_norm=NUMBERS,
        update_norm=st.none() | NUMBERS,
    ),
    tensor_stats=listed(
        TensorStat,
        step=COUNTS,
        node=COUNTS,
        slot=COUNTS,
        order=MAYBE_COUNTS,
        gradient=GRADIENTS,
        reason=st.none() | TEXTS,
    ),
    skipped=listed(Skipped, what=TEXTS, reason=TEXTS),
    cuts=listed(
        CutRecord,
        graph=COUNTS,
        operation=TEXTS,
        kind=st.sampled_from(["detach", "no-grad", "read", "non-differentiable"]),
        site=MAYBE_COUNTS,
        last=MAYBE_COUNTS,
        parameters=st.lists(COUNTS, max_size=3).map(tuple),
        joins=st.lists(COUNTS, max_size=3).map(tuple),
        count=COUNTS,
    ),
    finished=st.booleans(),
    input_stats=listed(InputStat, step=COUNTS, call=COUNTS, place=COUNTS, norm=st.none() | NUMBERS),
)


def gradient(norm):
    return GradientStat(
        numel=10,
        norm=norm,
        absolute_maximum=norm,
        zero_share=0.25,
        nonfinite=3,
        sampled=True,
        lowest_exponent=-12,
        magnitudes=(1, 0, 7),
    )


def stat(step, parameter, grad, update_norm=None):
    return ParameterStat(
        step=step,
        parameter=parameter,
        reach="none" if grad is None else "gradient",
        gradient=grad,
        reason="nothing used it" if grad is None else None,
        weight_norm=1.5,
        update_norm=update_norm,
    )


def small():
    """One linear layer."""
    return Recording(
        version="0.1.0",
        command="gradscope inspect model.py",
        environment=Environment(
            python="3.11", torch="2.13.0", platform="Linux", device="cpu", threads=1
        ),
        target=TargetRecord(
            name="model.py",
            model="Linear",
            batch="float32[4, 8]",
            loss="mean",
            optimizer=None,
            mode="train",
            seed=None,
            synthetic_loss=True,
            root="/tmp",
            repository="/tmp",
        ),
        modules=(
            ModuleRecord(
                index=0,
                path="",
                aliases=(),
                class_name="Linear",
                parent=None,
                in_model=True,
                training=True,
            ),
        ),
        parameters=(
            ParameterRecord(
                index=0,
                name="weight",
                aliases=("tied.weight",),
                module=0,
                shape=Shape(dims=(4, 8), dtype="float32"),
                device="cpu",
                numel=32,
                requires_grad=True,
                optimizer_group=None,
            ),
        ),
        calls=(),
        sites=(),
        nodes=(),
        edges=(),
        steps=(StepRecord(index=0, kind="step", graph=0, loss=math.nan, optimizer=None),),
        events=(),
        parameter_stats=(stat(0, 0, gradient(2.0)),),
        tensor_stats=(),
        skipped=(),
    )


def with_stats(*stats):
    return dataclasses.replace(small(), parameter_stats=stats)


def comparable(value):
    """Nested tuples in which NaN, which is not equal to itself, has become a string."""
    if dataclasses.is_dataclass(value):
        return tuple(comparable(getattr(value, item.name)) for item in dataclasses.fields(value))
    if isinstance(value, tuple):
        return tuple(map(comparable, value))
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def round_trip(recording, path):
    save_recording(recording, path, force=True)
    return load_recording(path)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(recording=RECORDINGS)
@example(recording=small())
def test_recording_comes_back_as_it_was(recording, tmp_path):
    assert comparable(round_trip(recording, tmp_path / "a.gradscope")) == comparable(recording)


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
        (newer_format, "format 2"),
        (torn, "cannot read"),
        (unreadable_cell, "`square` is not a shape"),
        (lost_meta, "`version` is missing"),
    ],
)
def test_bad_file_is_told_in_one_line(make, told, tmp_path):
    path = tmp_path / "a.gradscope"
    make(path)
    with pytest.raises(GradscopeError, match=told) as raised:
        load_recording(path)
    assert str(path) in raised.value.what
    assert "\n" not in raised.value.what
