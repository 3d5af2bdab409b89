"""`--micro-batches` as a process: what is told where the batch cannot be divided so."""

import pytest

MODEL = """
import torch
from torch import nn
model = nn.Linear(4, 1)
batch = (torch.ones(6, 4), torch.zeros(6, 1))
criterion = nn.MSELoss()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("micro_batches")
    (folder / "model.py").write_text(MODEL)
    (folder / "pyproject.toml").write_text("[tool.gradscope]\nmicro-batches = 40\n")
    return folder


@pytest.fixture
def gradscope(gradscope_in, folder):
    return lambda *arguments: gradscope_in(folder, *arguments, NO_COLOR="1", COLUMNS="100")


def test_option_wins_over_the_configuration(gradscope):
    done = gradscope("inspect", "model.py", "--micro-batches", "3", "--probe-steps", "0")
    assert done.returncode == 0
    assert "accumulated gradients are 3.000 times the full batch's: divide" in done.stdout


def test_too_many_are_one_clear_error(gradscope):
    done = gradscope("inspect", "model.py")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "error: 40 micro-batches: the batch has 6 examples only",
        "  cause: it is float32[6,4], float32[6,1]",
        "  help: give a batch of 40 or more, or use fewer micro-batches",
    ]


def test_graph_needs_none(gradscope):
    assert gradscope("graph", "model.py").returncode == 0


def test_errors_exit_with_2_and_nothing_on_stdout(tmp_path, gradscope_in):
    done = gradscope_in(tmp_path, "config", "fail-levle")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: unknown key `fail-levle`\n  help: did you mean `fail-level`?\n"
    (tmp_path / "pyproject.toml").write_text("[tool.gradscope]\nfail-level = 3\n")
    done = gradscope_in(tmp_path, "config")
    assert (done.returncode, done.stdout) == (2, "")
    assert "`tool.gradscope.fail-level` in pyproject.toml:2 has to be one of" in done.stderr


def test_terminals_of_few_characters_get_what_they_can_show(tmp_path, ascii_gradscope_in):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.gradscope.targets]\na = "modèle.py"\n', encoding="utf-8"
    )
    done = ascii_gradscope_in(tmp_path, "config")
    assert (done.returncode, done.stderr) == (0, "")
    assert "mod\\xe8le.py" in done.stdout


def test_torch_is_not_imported(tmp_path, packages_imported_by):
    done, packages = packages_imported_by(tmp_path, "config")
    assert done.returncode == 0, done.stderr
    assert "torch" not in packages
