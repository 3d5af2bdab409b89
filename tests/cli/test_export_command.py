"""`gradscope export` from the command line, in this process."""

import csv
import io
import sys

import pytest

from gradscope.cli import main
from gradscope.recording.store import save_recording
from tests.recording.recordings import small


@pytest.fixture
def export(tmp_path, monkeypatch, capsys):
    """Runs the command on a recording in a folder; gives its exit code, output and messages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which typer replaces
    save_recording(small(), "a.gradscope")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["gradscope", "export", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        output = capsys.readouterr()
        return ended.value.code, output.out, output.err

    return run


def test_tables_are_written_and_told(export, tmp_path):
    assert export("a.gradscope", "--to", "csv", "-o", "out") == (
        0,
        "",
        "note: wrote 7 tables into out\n",
    )
    assert len(list((tmp_path / "out").iterdir())) == 7
    code, _, told = export("a.gradscope", "--to", "tensorboard", "-o", "logs")
    assert code == 0 and told.endswith("view it with tensorboard --logdir logs\n")
    assert export("a.gradscope", "--to", "csv", "-o", "out", "-q", "--force") == (0, "", "")


def test_a_folder_may_stand_behind_the_form(export, tmp_path):
    code, _, told = export("a.gradscope", "--to", "tensorboard", "logs")
    assert code == 0 and told.endswith("--logdir logs\n")
    assert list((tmp_path / "logs").iterdir())


def test_stdout_holds_a_table_and_nothing_else(export):
    code, out, told = export("a.gradscope", "--to", "csv", "--table", "parameters")
    (row,) = csv.DictReader(io.StringIO(out))
    assert (code, told, row["parameter"], row["grad_norm"]) == (0, "", "weight", "2.0")


def test_findings_are_judged_by_the_rules_that_are_asked_for(export):
    asked = ("a.gradscope", "--to", "csv", "--table", "findings")
    everything, nothing = (len(export(*asked, *more)[1].splitlines()) for more in ((), SELECTED))
    assert everything > nothing == 1


SELECTED = ("--select", "GS701")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("missing.gradscope", "--to", "csv", "-o", "out"), "cannot read `missing.gradscope`"),
        (("a.gradscope", "--to", "csv"), "one file per table and needs a folder"),
        (
            ("a.gradscope", "--to", "csv", "--table", "steps", "-o", "a.gradscope", "-f"),
            "is the exported",
        ),
        (("a.gradscope", "--to", "xml", "-o", "out"), "'xml'"),
        (("a.gradscope", "--to", "csv", "here", "-o", "there"), "both name the output"),
    ],
)
def test_bad_input_is_told_in_a_line(arguments, told, export, tmp_path):
    code, out, err = export(*arguments)
    assert (code, out) == (2, "") and told in err
    assert [file.name for file in tmp_path.iterdir()] == ["a.gradscope"]


def test_nothing_heavy_is_imported_for_text(export, tmp_path, packages_imported_by):
    done, imported = packages_imported_by(
        tmp_path, "export", "a.gradscope", "--to", "jsonl", "-o", "out"
    )
    assert done.returncode == 0, done.stderr
    assert "gradscope" in imported
    assert imported.isdisjoint({"torch", "pyarrow", "tensorboard", "numpy", "plotly", "jinja2"})
