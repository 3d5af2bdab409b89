"""What CI services read is what they accept, and holds no hole."""

import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from check_jsonschema import main as check_schema
from ruamel.yaml import YAML

from tests.recipes.workflow_files import ACTION, GITLAB, HOOKS, ROOT, WORKFLOWS, content, scripts
from tests.versions import FLOOR, RUNS

GITHUB = (*WORKFLOWS, ACTION)


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("github-workflows", WORKFLOWS),
        ("github-actions", (ACTION,)),
        ("gitlab-ci", (GITLAB,)),
    ],
)
def test_files_are_valid(schema, paths, capsys):
    transform = ["--data-transform", schema] if schema == "gitlab-ci" else []
    arguments = ["--builtin-schema", f"vendor.{schema}", *transform, *map(str, paths)]
    assert check_schema(arguments, standalone_mode=False) in (None, 0), capsys.readouterr().out


@pytest.mark.parametrize("path", GITHUB, ids=lambda path: path.name)
def test_no_expression_becomes_part_of_a_script(path):
    assert list(scripts(path))
    assert not [script for script in scripts(path) if "${{" in script]


@pytest.mark.parametrize("path", GITHUB, ids=lambda path: path.name)
def test_scripts_are_bash(path):
    for script in scripts(path):
        done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_trust_nothing_that_can_move(path):
    workflow = content(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"]
        for step in job["steps"]:
            used = step.get("uses", "./")
            assert used.startswith("./") or re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", used)
            if used.startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False


def test_ci_runs_the_projects_own_script():
    assert ".ci/run" in list(scripts(ROOT / ".github" / "workflows" / "ci.yml"))


def test_versions_are_those_that_the_script_runs_and_begin_with_the_oldest():
    jobs = content(ROOT / ".github" / "workflows" / "versions.yml")["jobs"]
    matrix = jobs["tests"]["strategy"]["matrix"]["include"]
    assert [(one["torch"], one["python"]) for one in matrix] == list(RUNS)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"torch>={FLOOR}" in project["dependencies"]
    assert project["requires-python"] == f">={min(python for _, python in RUNS)}"


def test_workflow_gives_inputs_that_the_action_has_and_reads_outputs_that_it_sets():
    action, path = content(ACTION), ROOT / ".github" / "workflows" / "gradients.yml"
    steps = content(path)["jobs"]["action"]["steps"]
    (used,) = [step for step in steps if step.get("uses", "").startswith("./")]
    assert (ROOT / used["uses"] / "action.yml").samefile(ACTION)
    assert used["with"].keys() <= action["inputs"].keys()
    read = set(re.findall(r"steps\.gradscope\.outputs\.([\w-]+)", path.read_text()))
    assert read and read <= action["outputs"].keys()


def test_every_input_is_used_and_has_a_default():
    action = content(ACTION)
    used = set(re.findall(r"inputs\.([\w-]+)", str(action["runs"])))
    assert used == set(action["inputs"])
    assert all(isinstance(one["default"], str) for one in action["inputs"].values())


def test_hook_checks_the_configured_targets_with_the_users_own_gradscope():
    (hook,) = content(HOOKS)
    assert hook["entry"].split() == ["gradscope", "check"]
    assert (hook["language"], hook["pass_filenames"]) == ("system", False)


@pytest.fixture
def gradscope_on_path(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "gradscope").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gradscope "$@"\n')
    (folder / "gradscope").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.nightly
def test_gitlab_job_fails_and_leaves_its_reports(tmp_path, monkeypatch, gradscope_on_path):
    job = content(GITLAB)["gradscope"]
    assert job["artifacts"]["when"] == "always"
    shutil.copy(ROOT / "sample_models" / "gradient_cut.py", tmp_path / "a b[c].py")
    (tmp_path / "pyproject.toml").write_text('[tool.gradscope.targets]\none = "a b[c].py"\n')
    monkeypatch.setenv("GRADSCOPE_ARGS", "one --output-format concise")
    done = subprocess.run(
        ["sh", "-e", "-c", "\n".join(job["script"])], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    assert "GS201" in done.stdout
    for report in job["artifacts"]["reports"].values():
        assert "GS201" in (tmp_path / report).read_text()


def test_page_on_ci_shows_steps_that_are_valid(tmp_path, capsys):
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    yaml = YAML(typ="safe")
    workflow, *shown, hooks = (
        yaml.load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    )
    steps = workflow["jobs"]["gradients"]["steps"]
    steps += [step for some in shown for step in some]
    action = content(ACTION)
    used = [step for step in steps if "/actions/gradscope@" in step.get("uses", "")]
    assert used and all(step["with"].keys() <= action["inputs"].keys() for step in used)
    assert not [step for step in steps if "${{" in step.get("run", "")]
    path = tmp_path / "workflow.yml"
    with path.open("w", encoding="utf-8") as file:
        yaml.dump({"on": "push", **workflow}, file)
    assert check_schema(
        ["--builtin-schema", "vendor.github-workflows", str(path)], standalone_mode=False
    ) in (None, 0), capsys.readouterr().out
    (repository,) = hooks["repos"]
    assert [one["id"] for one in repository["hooks"]] == [one["id"] for one in content(HOOKS)]


def test_page_on_ci_shows_the_line_of_the_gitlab_job():
    *_, command = content(GITLAB)["gradscope"]["script"]
    shown = command.removesuffix(" $GRADSCOPE_ARGS")
    assert f"\n{shown}\n" in (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
