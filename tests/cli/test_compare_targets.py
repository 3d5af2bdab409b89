"""`gradscope compare` with targets that run in this process, as far as that is told apart."""

import json
import sys
from pathlib import Path

import pytest

from gradscope.cli import main
from gradscope.cli.running import record_target
from tests.cli.processes.test_compare_process import MODEL


@pytest.fixture
def compare(tmp_path, monkeypatch, capsys):
    """Runs the command in the folder of a model, and returns its exit code and JSON."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which typer replaces
    Path("model.py").write_text(MODEL)

    def run_here(job, folder, timeout):
        try:
            return record_target(job.spec, job.options, job.trial, command=job.command)
        finally:
            sys.modules.pop("model", None)

    monkeypatch.setattr("gradscope.cli.processes.isolation.run_apart", run_here)

    def run(*arguments):
        words = ["gradscope", "compare", *arguments, "--output-format", "json", "-o", "out.json"]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main()
        capsys.readouterr()
        return ended.value.code, json.loads(Path("out.json").read_text())

    return run


def changes(value, position=1):
    return {one["name"]: one["pairs"][position]["change"] for one in value["parameters"]}


def test_a_target_twice_is_equal_and_a_change_that_cuts_a_gradient_a_regression(compare):
    cut = "model.py:build(cut=True)"
    code, value = compare("model.py", "model.py:build()", cut, "--seed", "3",
                          "--fail-on-regression", "--fail-level", "warning")  # fmt: skip
    assert code == 1
    assert set(changes(value).values()) == {"equal"}
    assert changes(value, 2) == {
        "first.weight": "lost", "first.bias": "lost", "last.weight": "equal", "last.bias": "equal",
    }  # fmt: skip
    worse = [(one["side"], one["kind"], one["subjects"]) for one in
             value["verdict"]["regressions"]]  # fmt: skip
    assert worse == [("C", "finding", ["GS201"]), ("C", "lost", ["first.weight", "first.bias"])]
    assert value["differences"] == []


def test_another_seed_has_other_gradients(compare):
    code, value = compare("model.py", "--vary", "seed=0,1")
    assert code == 0
    assert {one["what"]: one["values"] for one in value["differences"]} == {"seed": ["0", "1"]}
    assert "equal" not in changes(value).values()
    assert value["sides"][1]["cosine"] < 0.9


def test_a_recording_is_what_a_changed_target_is_held_to(compare, monkeypatch):
    words = ["inspect", "model.py", "--save", "main.gradscope", "--keep-gradients", "sketch", "-q"]
    monkeypatch.setattr(sys, "argv", ["gradscope", *words, "-o", "report.txt"])
    with pytest.raises(SystemExit):
        main()
    sys.modules.pop("model", None)
    assert compare("main.gradscope", "model.py", "--fail-on-regression")[0] == 0
    code, value = compare("main.gradscope", "model.py:build(width=9)")
    assert code == 0
    assert changes(value)["first.weight"] == "reshaped"
