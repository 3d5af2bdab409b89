"""The plugin in separate processes: its imports, and results of workers."""

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

UNUSED = """
import sys

def test_one():
    heavy = ("torch", "rich", "typer", "sqlite3", "numpy")
    assert [name for name in heavy if name in sys.modules] == []
    assert sorted(name for name in sys.modules if name.startswith("gradscope")) == [
        "gradscope", "gradscope.frozen", "gradscope.integrations",
        "gradscope.integrations.check_events",
        "gradscope.integrations.pytest_plugin",
        "gradscope.version",
    ]
"""

WORKERS = """
import dataclasses
import pytest
from gradscope.integrations.check_events import Check, announce, columns

@pytest.mark.parametrize("number", range(4))
@pytest.mark.gradscope
def test_check(number):
    assert columns() == 150  # of the terminal, which a worker does not have
    announce(Check(model="Net", passed=number > 0, parameters=number, grad_norm=float("nan"),
                   errors=number == 0, warnings=0, notes=0, worst="GS103 x", location="net.py:1"))

@pytest.mark.gradscope(max_nrom=1)
def test_wrong(): pass

@pytest.mark.gradscope
def test_nothing(): pass
"""


def run_pytest(folder, text, *arguments):
    (folder / "test_it.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "gradscope.integrations.pytest_plugin", *arguments],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "150"},
        capture_output=True,
        text=True,
    )


def test_tests_that_check_nothing_load_nothing(tmp_path):
    done = run_pytest(tmp_path, UNUSED, "-W", "error")
    assert done.returncode == 0, done.stdout


@pytest.mark.nightly
def test_checks_travel_from_workers(tmp_path):
    done = run_pytest(tmp_path, WORKERS, "-p", "xdist", "-n", "2", "--gradscope")
    text = done.stdout
    assert "4 passed, 1 failed, 1 error" in text or "1 failed, 4 passed, 1 error" in text, text
    assert "caught  test_it.py::test_check[0]  Net    0           nan   1 error" in text
    assert "4 checks, 1 failed and caught, 1 test failed otherwise: 1 error" in text
    assert "pytest.mark.gradscope has no argument `max_nrom`: did you mean `max_norm`?" in text
    assert "test_nothing passed without a gradient check" in text


def test_pytest_finds_the_plugin():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (module,) = project["entry-points"]["pytest11"].values()
    assert import_module(module).__name__ == "gradscope.integrations.pytest_plugin"
    assert not any(one.startswith("pytest") for one in project["dependencies"])
