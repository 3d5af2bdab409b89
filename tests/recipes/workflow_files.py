"""The files that CI services read, and their steps as a runner runs them."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
WORKFLOWS = tuple(sorted((ROOT / ".github" / "workflows").glob("*.yml")))
ACTION = ROOT / ".github" / "actions" / "gradscope" / "action.yml"
GITLAB = ROOT / ".gitlab" / "gradscope.yml"
HOOKS = ROOT / ".pre-commit-hooks.yaml"

_EXPRESSION = re.compile(r"\$\{\{ *inputs\.([\w-]+) *\}\}")


@cache
def content(path: Path):
    """Return what a YAML file holds."""
    return YAML(typ="safe").load(path)


def scripts(path: Path) -> Iterator[str]:
    """Yield what a workflow or an action gives to a shell."""
    given = content(path)
    lists = [given["runs"]["steps"]] if "runs" in given else []
    lists += [job["steps"] for job in given.get("jobs", {}).values()]
    yield from (step["run"] for steps in lists for step in steps if "run" in step)


def run_step(
    number: int, inputs: Mapping[str, str], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess:
    """Run a step of the action in a folder as GitHub's runner does.

    Args:
        number: Which step, from 0.
        inputs: Those that the workflow gives; the others have their defaults.
        folder: The workspace.
        environment: Further variables.
    """
    action = content(ACTION)
    values = {name: one["default"] for name, one in action["inputs"].items()} | dict(inputs)
    step = action["runs"]["steps"][number]
    assert step["shell"] == "bash"
    given = {
        name: _EXPRESSION.sub(lambda match: values[match[1]], text)
        for name, text in step["env"].items()
    }
    runner = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_ACTION_PATH": str(ACTION.parent),
        "GITHUB_WORKSPACE": str(folder),
        "GITHUB_OUTPUT": str(folder / "outputs"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
    }
    script = folder / "script.sh"
    script.write_text(step["run"])
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
        cwd=folder / values["working-directory"],
        env={**os.environ, "OMP_NUM_THREADS": "1", **runner, **given, **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def outputs(folder: Path) -> dict[str, str]:
    """Return the outputs that a step has set, read as the runner reads them."""
    found, lines = {}, iter((folder / "outputs").read_text(encoding="utf-8").split("\n"))
    for line in filter(None, lines):
        name, mark, end = line.partition("<<")
        if not mark:
            name, _, found[name] = line.partition("=")
            continue
        value = []
        for one in lines:
            if one == end:
                break
            value.append(one)
        found[name] = "\n".join(value)
    return found
