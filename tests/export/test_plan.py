"""What is written where, and what is left alone."""

import csv
import io
from dataclasses import replace

import pytest

from gradscope.errors import GradscopeError
from gradscope.export.plan import planned_export
from gradscope.export.table import Source
from gradscope.export.tables import TABLES


def whole(report):
    return Source(run=None, load=lambda: report)


def written(plan, report):
    stream = io.StringIO()
    plan.check(force=False, inputs=())
    plan.write(whole(report), stream)
    return stream.getvalue()


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_every_table_has_a_file_in_the_folder(form, tmp_path, inspected):
    folder = tmp_path / "new" / "folder"
    assert written(planned_export(form, str(folder), None), inspected) == ""
    assert {file.name for file in folder.iterdir()} == {f"{name}.{form}" for name in TABLES}


def test_one_table_goes_to_stdout_or_to_a_file(tmp_path, inspected):
    text = written(planned_export("csv", None, "steps"), inspected)
    assert written(planned_export("csv", "-", "steps"), inspected) == text
    file = tmp_path / "steps.txt"
    assert written(planned_export("csv", str(file), "steps"), inspected) == ""
    assert file.read_text() == text
    assert len(list(csv.reader(io.StringIO(text)))) == 4


def test_files_are_not_overwritten_unless_forced(tmp_path, inspected):
    (tmp_path / "events.csv").write_text("mine")
    plan = planned_export("csv", str(tmp_path), None)
    with pytest.raises(GradscopeError, match=r"events\.csv' already exists") as raised:
        plan.check(force=False, inputs=())
    assert "--force" in raised.value.help
    assert [file.name for file in tmp_path.iterdir()] == ["events.csv"]
    plan.check(force=True, inputs=())
    plan.write(whole(inspected), io.StringIO())
    assert (tmp_path / "events.csv").read_text().startswith("step,")


def test_what_is_exported_is_never_overwritten(tmp_path):
    recording = tmp_path / "run.csv"
    plan = planned_export("csv", str(recording), "steps")
    with pytest.raises(GradscopeError, match="is the exported recording"):
        plan.check(force=True, inputs=[recording])


def test_half_a_file_is_never_left_behind(tmp_path, inspected):
    def rows(report):
        yield ("half",)
        raise OSError(28, "No space left on device")

    table = replace(TABLES["steps"], columns=(("step", "text"),), rows=rows)
    file = tmp_path / "steps.csv"
    file.write_text("before")
    plan = replace(planned_export("csv", str(file), "steps"), tables=((table, file),))
    with pytest.raises(GradscopeError, match="cannot write") as raised:
        plan.write(whole(inspected), io.StringIO())
    assert raised.value.cause == "No space left on device"
    assert file.read_text() == "before" and list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        (("csv", None, None), "--to csv writes one file per table and needs a folder"),
        (("jsonl", "-", None), "--to jsonl writes one file per table and needs a folder"),
        (("parquet", None, "steps"), "Parquet cannot be written to stdout"),
        (("tensorboard", "logs", "steps"), "--to tensorboard writes curves, not tables"),
        (("tensorboard", None, None), "--to tensorboard needs a folder"),
    ],
)
def test_what_does_not_go_together_is_told(asked, what):
    with pytest.raises(GradscopeError) as raised:
        planned_export(*asked)
    assert raised.value.what == what and raised.value.help


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(GradscopeError, match="is not a folder"):
        planned_export("csv", str(tmp_path / "taken"), None).check(force=True, inputs=())
    with pytest.raises(GradscopeError, match="it is a directory"):
        planned_export("csv", str(tmp_path), "steps").check(force=True, inputs=())
