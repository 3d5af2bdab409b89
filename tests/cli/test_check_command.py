"""`gradscope check` on recordings: everything about the command but running targets."""

import json
import os
import sys
from pathlib import Path

import pytest

from gradscope.cli import main
from gradscope.cli.options import split_arguments
from gradscope.recording.store import save_recording
from tests.nightly import some_on_push
from tests.rules.inspecting import report_of_file

ROOT = Path(__file__).parents[2]
SAMPLES = ("exploding_stack", "unused_parameter", "healthy_mlp")


def _words(value):
    return " ".join(value) or "nothing" if isinstance(value, list) else ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with recordings of samples."""
    folder = tmp_path_factory.mktemp("recordings")
    before = Path.cwd()
    os.chdir(ROOT)  # to which the paths in the recordings are relative
    try:
        for sample in SAMPLES:
            recording = report_of_file(ROOT / "sample_models" / f"{sample}.py").recording
            save_recording(recording, folder / f"{sample}.gradscope")
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def check(folder, tmp_path, monkeypatch, capsys):
    """Runs the command in an empty folder; gives its exit code, report and messages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which typer replaces

    def run(*arguments):
        names = [
            str(folder / f"{name}.gradscope") if name in SAMPLES else str(name)
            for name in arguments
        ]
        monkeypatch.setattr(sys, "argv", ["gradscope", "check", *names])
        with pytest.raises(SystemExit) as ended:
            main()
        output = capsys.readouterr()
        return ended.value.code, output.out, output.err

    return run


def test_reason_why_a_target_is_not_checked_is_written_once(check):
    Path("torn.gradscope").write_bytes(b"torn")
    code, out, err = check("torn.gradscope")
    assert (code, err) == (2, "")
    what = "torn.gradscope"
    assert " ".join(out.split()).startswith(f"not checked {what} ")
    code, out, err = check("torn.gradscope", "--output-format", "json")
    assert json.loads(out)["targets"][0]["outcome"] == "unjudged"
    assert err.startswith("error: ") and what in err
    _, out, err = check("torn.gradscope", "-o", "check.txt")
    assert err.startswith("error: ") and what in err


@pytest.mark.parametrize(
    ("arguments", "code"),
    some_on_push(
        [
            (["exploding_stack"], 1),
            (["exploding_stack", "--exit-zero"], 0),
            (["exploding_stack", "--ignore", "GS101"], 0),
            (["exploding_stack", "--select", "reach"], 0),
            (["unused_parameter"], 0),
            (["unused_parameter", "--fail-level", "warning"], 1),
            (["unused_parameter", "--max-warnings", "0"], 1),
            (["unused_parameter", "--max-warnings", "1"], 0),
            (["healthy_mlp", "--max-grad-norm", "3"], 1),
            (["healthy_mlp", "--max-grad-norm", "4", "--min-grad-norm", "3"], 0),
            (["healthy_mlp", "--min-grad-norm", "4"], 1),
            (["healthy_mlp", "unused_parameter", "exploding_stack"], 1),
            (["unused_parameter", "unused_parameter", "--max-warnings", "1"], 0),
            (["healthy_mlp", "nowhere.gradscope"], 2),
            (["healthy_mlp", "--ignore", "ALL"], 2),
            (["healthy_mlp", "--ignore", "ALL", "--exit-zero"], 2),
        ],
        4,
    ),
    ids=_words,
)
def test_exit_code(check, arguments, code):
    assert check(*arguments)[0] == code


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "no target given"),
        (["healthy_mlp", "--select", "GS999"], "no rule `GS999`"),
        (["healthy_mlp", "--seed", "3"], "--seed applies to targets"),
        (["healthy_mlp", "--steps", "3"], "--steps applies to targets"),
        (["healthy_mlp", "--baseline", "none.json"], "none.json"),
        (["healthy_mlp", "--prune-baseline"], "--prune-baseline needs a baseline"),
        (["healthy_mlp", "--strict-baseline"], "--strict-baseline needs a baseline"),
        (["healthy_mlp", "--max-grad-norm", "nan"], "--max-grad-norm"),
        (["healthy_mlp", "--max-grad-norm", "-1"], "--max-grad-norm"),
        (["healthy_mlp", "--max-grad-norm", "1", "--min-grad-norm", "2"], "no gradient norm"),
        (["healthy_mlp", "-o", "missing/report.txt"], "no such directory: 'missing'"),
        (["healthy_mlp", "--save", "again"], "the recordings are already saved"),
        (["nowhere.py", "--save", "taken"], "'taken' already exists"),
        (["taken", "--save", "taken", "--force"], "would overwrite what the command reads"),
        (["./a.py", "--seeds", "2", "--save", "taken/x"], "cannot create the folder"),
        (["healthy_mlp", "--write-baseline", "--baseline", "no/b.json"], "no such directory: 'no'"),
        (["nowhere.py", "--seeds", "2", "--save", "taken"], "`taken` can hold one recording"),
        (
            ["./a.py", "--seeds", "2", "--save", "full"],
            "'full/a.py-seed-1.gradscope' already exists",
        ),
    ],
    ids=_words,
)
def test_wrong_usage_is_told_in_a_line_before_anything_is_judged(check, tmp_path, arguments, text):
    (tmp_path / "taken").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.py-seed-1.gradscope").write_text("")
    code, out, err = check(*arguments)
    assert (code, out) == (2, "")
    assert text in err
    assert "Traceback" not in err


def test_configuration_typo_is_an_error_with_file_and_key(check, tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.gradscope]\nfail-levle = 'error'\n")
    code, out, err = check("healthy_mlp")
    assert (code, out) == (2, "")
    assert "pyproject.toml" in err
    assert "fail-level" in err


def test_configuration_decides_unless_the_command_line_does(check, tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        "[tool.gradscope]\nfail-level = 'warning'\noutput-format = 'concise'\n"
        "[tool.gradscope.grad-norms]\n'*' = { min = 1e-9 }\n"
    )
    code, out, _ = check("unused_parameter")
    assert code == 1
    assert out.splitlines()[-2:] == ["Failed: 1 warning.", "next: gradscope rule GS203"]
    assert check("unused_parameter", "--fail-level", "error")[0] == 0
    code, out, _ = check("healthy_mlp", "--output-format", "json")
    assert code == 0
    assert "GS113" in json.loads(out)["targets"][0]["runs"][0]["rules"]["ran"]


def test_limits_that_hold_for_nothing_are_told(check, tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        "[tool.gradscope.grad-norms]\n'4' = { max = 99 }\n'hed.*' = { max = 1e-9 }\n"
    )
    code, out, _ = check("healthy_mlp")
    assert code == 0
    assert "No module matches `hed.*`" in out
    assert "`4`" not in out


def test_baseline_is_written_applied_and_pruned(check, tmp_path):
    file = tmp_path / ".gradscope-baseline.json"
    code, _, err = check("exploding_stack", "--write-baseline")
    assert (code, file.exists()) == (0, True)
    assert "wrote .gradscope-baseline.json: 1 known finding" in err
    assert check("exploding_stack")[0] == 1  # only those who ask for it get it
    known = ("--baseline", file)
    assert check("exploding_stack", *known)[0] == 0
    # Judged by the rules that knew it, the target is well again: its entry is stale.
    (tmp_path / "pyproject.toml").write_text(
        "[tool.gradscope.rules.exploding-gradient]\n"
        + "".join(f"{name}_decades = 50.0\n" for name in ("note", "warning", "error", "jump"))
    )
    code, out, _ = check("exploding_stack", *known)
    assert code == 0
    assert "In the baseline, but no longer found: GS101" in out
    assert check("exploding_stack", *known, "--strict-baseline")[0] == 1
    assert check("exploding_stack", *known, "--strict-baseline", "--prune-baseline")[0] == 0
    assert json.loads(file.read_text())["findings"] == []


def test_report_goes_to_the_file_and_stdout_stays_empty(check, tmp_path):
    code, out, err = check("exploding_stack", "-o", "report.sarif", "--output-format", "sarif")
    assert (code, out) == (1, "")
    assert "wrote report.sarif" in err
    assert json.loads((tmp_path / "report.sarif").read_text())["version"] == "2.1.0"


def test_recordings_are_never_overwritten_by_the_report(check, folder):
    code, _, err = check("healthy_mlp", "-o", folder / "healthy_mlp.gradscope")
    assert code == 2
    assert "would overwrite what the command reads" in err


def test_github_gets_annotations_a_summary_and_no_commands_of_user_code(
    check, tmp_path, monkeypatch
):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    code, out, err = check("exploding_stack", "--output-format", "github")
    assert code == 1
    assert out.startswith("::error ")
    assert summary.read_text().startswith("before\n## gradscope")
    stop, empty, start = err.splitlines()
    assert not empty  # what user code printed last may have no end of line
    assert stop == f"::stop-commands::{start.strip(':')}"
    length = len(summary.read_text())
    check("exploding_stack", "--output-format", "github", "--no-step-summary")
    check("exploding_stack", "--output-format", "concise")
    assert len(summary.read_text()) == length


@pytest.mark.parametrize(
    ("line", "targets", "rest"),
    [
        (["a.py", "b.py"], ("a.py", "b.py"), ()),
        (["a.py", "--", "--lr", "1"], ("a.py",), ("--lr", "1")),
        (["a.py", "--", "x", "--", "y"], ("a.py",), ("x", "--", "y")),
        (["--", "x"], (), ("x",)),
        (["a.py", "--"], ("a.py",), ()),
    ],
)
def test_what_follows_two_dashes_is_for_the_targets_file(line, targets, rest):
    given = [one for position, one in enumerate(line) if position != _first(line)]
    assert split_arguments(given, ["gradscope", "check", *line]) == (targets, rest)


def _first(line):
    return line.index("--") if "--" in line else None


def test_recordings_are_judged_without_torch(folder, packages_imported_by):
    done, packages = packages_imported_by(folder, "check", "healthy_mlp.gradscope")
    assert (done.returncode, done.stderr) == (0, "")
    assert "torch" not in packages
