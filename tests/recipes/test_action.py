"""The action, its steps run by bash in the environment that GitHub sets."""

import importlib.util
import json
import shlex
import shutil
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.nightly import some_on_push
from tests.recipes.workflow_files import ACTION, ROOT, outputs, run_step

INSTALL, CHECK = 0, 1
HOSTILE = [
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned #",
    "' ; touch pwned ; '",
    '" ; touch pwned ; "',
    "--exit-zero",
    "-o",
    "--",
    "*",
    "a\rb",
    "::error::x",
    "é ${HOME}",
]

_spec = importlib.util.spec_from_file_location("check_of_action", ACTION.with_name("check.py"))
check = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(check)


@pytest.fixture
def workspace(tmp_path):
    """A repository with a broken model in a folder of it."""
    (tmp_path / ".git").mkdir()
    models = tmp_path / "my models"
    models.mkdir()
    shutil.copy(ROOT / "sample_models" / "gradient_cut.py", models / "bad.py")
    return tmp_path


@pytest.fixture
def recorder(tmp_path):
    """A stand-in for Python that writes down its arguments, each on a line of JSON."""
    program = tmp_path / "recorder"
    script = "import json, sys; open(sys.argv[1], 'a').write(json.dumps(sys.argv[2:]))"
    words = shlex.join([sys.executable, "-c", script, str(tmp_path / "recorded")])
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)
    return program


def run(workspace, **inputs):
    names = {name.replace("_", "-"): value for name, value in inputs.items()}
    return run_step(CHECK, {"python": sys.executable, **names}, workspace, {})


def test_broken_gradients_fail_the_step_with_annotations_and_one_run_for_all_reports(workspace):
    done = run(
        workspace,
        targets="\n  bad.py\n\n",
        working_directory="my models",
        sarif_file="out [1].sarif",
    )
    assert done.returncode == 1, done.stderr
    assert outputs(workspace) == {"exit-code": "1", "sarif-file": "my models/out [1].sarif"}
    annotation, verdict, stop, *log, start = done.stdout.rstrip("\n").split("\n")
    assert annotation.startswith("::error file=my models/bad.py,line=23,title=gradscope (GS201")
    assert verdict == "Failed: 1 error."
    assert "\n".join(log).count("error[GS201]") == 1
    assert start == f"::{stop.removeprefix('::stop-commands::')}::"
    assert "## gradscope: failed" in (workspace / "summary.md").read_text()
    sarif = json.loads((workspace / "my models" / "out [1].sarif").read_text())
    (found,) = [one for run in sarif["runs"] for one in run["results"]]
    position = found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert (found["ruleId"], position) == ("GS201", "my%20models/bad.py")


@pytest.mark.nightly
def test_healthy_gradients_pass_and_inputs_choose_rules_and_level(workspace):
    done = run(workspace, targets="my models/bad.py", args="--ignore 'GS201'", fail_level="note")
    assert done.returncode == 0, done.stdout + done.stderr
    assert outputs(workspace) == {"exit-code": "0"}
    assert "::error" not in done.stdout
    assert "Passed" in done.stdout


@pytest.mark.nightly
def test_hostile_inputs_are_names_of_files_that_are_not_there(workspace):
    done = run(
        workspace,
        targets="--exit-zero $(touch pwned); touch pwned # \"' é ${HOME} ::error::x",
        args="'`touch pwned` *'",
        sarif_file="new\ninjected=1",
    )
    assert done.returncode == 2, done.stderr
    assert outputs(workspace) == {"exit-code": "2", "sarif-file": "new\ninjected=1"}
    assert not list(workspace.rglob("pwned"))
    commands = [line for line in done.stdout.split("\n") if line.startswith("::")]
    assert len(commands) == 2 + 2  # the failures, and what switches commands off and on
    assert "could not check ./--exit-zero" in commands[0]
    assert all(line.startswith("::error title=gradscope::could not") for line in commands[:2])


@pytest.mark.parametrize("text", HOSTILE)
def test_no_shell_reads_an_input(workspace, recorder, text):
    names = ("targets", "args", "sarif-file", "fail-level", "output-format")
    inputs = {"python": str(recorder), **dict.fromkeys(names, text)}
    done = run_step(CHECK, inputs, workspace, {})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    script, *words = json.loads((workspace / "recorded").read_text())
    assert ACTION.with_name("check.py").samefile(script)
    assert words == []
    assert not (workspace / "pwned").exists()


def test_what_cannot_start_is_an_annotation_and_uploads_no_old_report(workspace):
    (workspace / "old.sarif").write_text("{}")
    done = run(workspace, args="--fail-level everything", sarif_file="old.sarif")
    assert done.returncode == 2
    assert "::error title=gradscope::" in done.stdout
    assert "everything" in done.stderr
    assert outputs(workspace) == {"exit-code": "2"}


@pytest.mark.parametrize(
    ("inputs", "text"),
    some_on_push(
        [
            ({"args": "--baseline 'x"}, "No closing quotation"),
            ({"args": "--help"}, "continuous integration"),
            ({"output_format": "xml"}, "xml"),
        ],
        3,
    ),
)
def test_a_step_that_judges_nothing_is_never_green(workspace, inputs, text):
    done = run(workspace, **inputs)
    assert (done.returncode, outputs(workspace)) == (2, {"exit-code": "2"})
    assert text in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "::error title=gradscope::" in done.stdout


def test_a_python_without_gradscope_is_told(workspace, monkeypatch, capfd):
    monkeypatch.setattr(check.importlib.util, "find_spec", lambda name: None)
    assert check.exit_code("report") == 2
    assert "has no gradscope" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("wanted", "package"),
    [
        ("", str(ACTION.parent / ".." / ".." / "..")),
        *((text, text) for text in ("gradscope==1.2.3", "a b", *HOSTILE)),
    ],
)
def test_one_package_is_installed_whatever_it_is_called(workspace, recorder, wanted, package):
    done = run_step(INSTALL, {"python": str(recorder), "install": wanted}, workspace, {})
    assert done.returncode == 0, done.stderr
    words = json.loads((workspace / "recorded").read_text())
    assert words[:3] == ["-m", "pip", "install"]
    assert words[words.index("--") + 1 :] == [package]
    assert not (workspace / "pwned").exists()


def test_the_package_that_comes_with_the_action_is_this_one():
    assert (ACTION.parent / ".." / ".." / ".." / "pyproject.toml").samefile(ROOT / "pyproject.toml")


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]))))
def test_targets_stay_whole_and_are_never_options(targets):
    words = check.arguments({"INPUT_TARGETS": "\n".join(targets)}, "report")
    names = [name for name in map(str.strip, targets) if name]
    assert words[:3] == ["check", "--output-format=github", "--also=full=report"]
    assert [word.removeprefix("./") for word in words[3:]] == [
        name.removeprefix("./") for name in names
    ]
    assert not [word for word in words[3:] if word.startswith("-")]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_args_are_the_words_that_a_shell_would_see(words):
    inputs = {"INPUT_ARGS": shlex.join(words), "INPUT_OUTPUT_FORMAT": "json"}
    first, *others = check.arguments(inputs, "report")
    assert (first, others) == ("check", ["--output-format=json", "--also=full=report", *words])
