"""`gradscope compare` with recordings, in this process."""

import json
import sys
from pathlib import Path

import pytest

from gradscope.cli import main
from gradscope.recording.store import save_recording
from tests.comparison.sides import GivenGradient, of_run, of_step

PARAMETERS = {"a.weight": 1.0, "b.weight": 2.0}


@pytest.fixture
def compare(tmp_path, monkeypatch, capsys):
    """Runs the command in an empty folder; gives its exit code, report and messages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which typer replaces

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["gradscope", "compare", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        output = capsys.readouterr()
        return ended.value.code, output.out, output.err

    return run


def save(name, recording):
    save_recording(recording, Path(name))


@pytest.fixture
def two(tmp_path, monkeypatch):
    """A recording, one that is the same, and one in which a parameter lost its gradient."""
    monkeypatch.chdir(tmp_path)
    save("before.gradscope", of_step(PARAMETERS))
    save("same.gradscope", of_step(PARAMETERS))
    save("after.gradscope", of_step(PARAMETERS | {"b.weight": GivenGradient(reach="none")}))


@pytest.mark.usefixtures("two")
def test_exit_code_is_1_for_a_regression_where_that_is_asked_for(compare):
    code, out, err = compare("before.gradscope", "after.gradscope")
    assert (code, err) == (0, "")
    assert "Use --fail-on-regression to exit with code 1" in out.replace("\n", " ")
    code, out, _ = compare("before.gradscope", "after.gradscope", "--fail-on-regression")
    assert code == 1
    assert out.endswith("Failed: 1 regression.\n")
    code, out, _ = compare("before.gradscope", "same.gradscope", "--fail-on-regression")
    assert code == 0
    assert out.endswith("Passed: no regression.\n")


@pytest.mark.usefixtures("two")
def test_one_side_that_fails_is_enough(compare):
    names = ["before.gradscope", "same.gradscope", "after.gradscope"]
    code, out, _ = compare(*names, "--fail-on-regression", "--output-format", "json")
    value = json.loads(out)
    assert code == 1
    assert [one["side"] for one in value["verdict"]["regressions"]] == ["C"]
    assert value["command"] == "gradscope compare " + " ".join(
        [*names, "--fail-on-regression", "--output-format", "json"]
    )


@pytest.mark.parametrize(
    ("option", "limit", "code"),
    [("--tolerance", 0.49, 1), ("--tolerance", 0.51, 0),
     ("--max-loss-increase", 0.19, 1), ("--max-loss-increase", 0.21, 0)],
)  # fmt: skip
def test_options_are_the_limits(compare, option, limit, code):
    save("before.gradscope", of_step(PARAMETERS, loss=1.0))
    save("after.gradscope", of_step(PARAMETERS | {"b.weight": 3.0}, loss=1.2))
    limits = {"--tolerance": 9, "--max-loss-increase": 9} | {option: limit}
    words = [word for item in limits.items() for word in item]
    sides = ["before.gradscope", "after.gradscope"]
    assert compare(*sides, "--fail-on-regression", *words)[0] == code


def test_nothing_to_compare_is_exit_code_2(compare):
    save("a.gradscope", of_step(PARAMETERS))
    save("dead.gradscope", of_step(dict.fromkeys(PARAMETERS, GivenGradient(reach="none"))))
    save(
        "b.gradscope",
        of_step({"x.weight": GivenGradient(dims=(3,)), "y.weight": GivenGradient(dims=(7,))}),
    )
    code, out, err = compare("a.gradscope", "dead.gradscope", "--fail-on-regression")
    assert (code, "2 gradients lost" in out) == (2, True)
    assert out.count("no parameter of B has a gradient: dead.gradscope") == 1
    assert "error: nothing to compare\n" in err
    for words in ((), ("-o", "page.html"), ("-q", "-o", "page.html"), ("--output-format", "json")):
        code, out, err = compare("a.gradscope", "b.gradscope", *words)
        told = err if words else out + err
        assert (code, told.count("have no parameter in common")) == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["a.gradscope"], "nothing to compare it with"),
        (["a.gradscope", "none.gradscope"], "cannot read `none.gradscope`"),
        (["a.gradscope", "a.gradscope", "--seed", "1"], "--seed applies to targets"),
        (["a.gradscope", "a.gradscope", "--vary", "seed=0,1"], "--vary applies to targets"),
        (
            ["a.gradscope", "a.gradscope", "--step", "3"],
            "--step needs a recording of a training run",
        ),
        (["m.py", "--vary", "sed=0,1"], "'sed' cannot be varied"),
        (["m.py", "--vary", "seed"], "'' is not a value of --seed"),
        (["m.py", "--vary", "seed=1,x"], "'x' is not a value of --seed"),
        (["m.py", "--vary", "lr=nan,1"], "'nan' is not a value of --lr"),
        (["m.py", "--vary", "mode=train,evil"], "--mode has to be one of train, eval"),
        (["m.py", "--vary", "seed=1"], "nothing to compare it with"),
        (["a.gradscope", "a.gradscope", "-o", "a.gradscope"], "would overwrite"),
        (["a.gradscope", "a.gradscope", "-o", "no/where"], "no such directory:"),
        (["a.gradscope", "a.gradscope", "--select", "GS999"], "GS999"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(compare, arguments, told):
    save("a.gradscope", of_step(PARAMETERS))
    code, out, err = compare(*arguments)
    assert (code, out) == (2, "")
    assert told in err
    assert "Traceback" not in err


@pytest.mark.usefixtures("two")
def test_report_goes_to_a_file(compare):
    sides = ["before.gradscope", "after.gradscope"]
    _, expected, _ = compare(*sides, "--output-format", "markdown")
    code, out, err = compare(*sides, "--output-format", "markdown", "-o", "report.md")
    note = "note: wrote report.md: 1 difference exceeds the tolerance.\n"
    assert (code, out, err) == (0, "", note)
    assert Path("report.md").read_text() == expected


@pytest.mark.usefixtures("two")
def test_failing_gate_says_why_beside_its_file(compare):
    sides = ["before.gradscope", "after.gradscope"]
    code, _, err = compare(*sides, "--fail-on-regression", "-o", "page.html")
    told, *why = err.splitlines()
    assert (code, told) == (1, "note: wrote page.html: Failed: 1 regression.")
    assert [line.split(":")[:2] for line in why] == [["note", " B"]]
    assert "b.weight" in why[0]


def test_step_chooses_one_of_a_run(compare):
    norms = [1.0] * 5 + [9.0] + [1.0] * 4
    save("a.gradscope", of_run({"w": [1.0] * 10}, [1.0] * 10))
    save("b.gradscope", of_run({"w": norms}, [1.0] * 10))
    sides = ["a.gradscope", "b.gradscope", "--fail-on-regression"]
    assert compare(*sides)[0] == 0
    code, out, _ = compare(*sides, "--step", "5")
    assert (code, "w: 1.00 → 9.00" in out) == (1, True)


def test_ranks_are_known_by_their_files(compare):
    for rank in (0, 1):
        save(f"job.rank{rank}.gradscope", of_run({"w": [1.0 + 1e-3 * rank] * 4}, [1.0 + rank] * 4))
    code, out, _ = compare("job.rank0.gradscope", "job.rank1.gradscope", "--fail-on-regression")
    assert code == 1
    assert "1 gradient norm disagree by more than 0.001 %" in out.replace("\n", " ")
    assert "loss:" not in out.rpartition("Parameters")[2]


@pytest.mark.usefixtures("two")
def test_top_is_how_many_are_listed(compare):
    save("many.gradscope", of_step({f"{position}.weight": 1.0 for position in range(40)}))
    save("grown.gradscope", of_step({f"{position}.weight": 9.0 for position in range(40)}))
    _, out, _ = compare("many.gradscope", "grown.gradscope", "--top", "7")
    assert "… 33 more: --top 40" in out
