"""Command lines of `run` without typer: what is parsed is what typer makes of it."""

import pytest
from typer.main import get_command

from gradscope.cli.app import app
from gradscope.cli.run.command import run
from gradscope.cli.run.plain_parser import parsed

PLAIN = (
    "train.py",
    "train.py --lr 0.1 -q --check",
    "-m package.train -m",
    "-- train.py",
    "--every 3 --tensor-every=0 --tensors-at 5 --tensors-at 7 train.py",
    "-qf --save=x.gradscope -o report.html train.py",
    "-oreport.html --open train.py a b",
    "--output-format json --output-file - --color never train.py",
    "--check --fail-fast --fail-level warning --max-warnings 3 train.py",
    "--select GS1 --select flow --ignore GS101 --config x.toml train.py",
    "--keep-gradients sketch --keep-gradients-every 7 --max-steps 9 --stop-after 8 train.py",
    "--no-tensors --live --every 1 --every 2 train.py",
)
NOT_PLAIN = (
    "",
    "-h",
    "--help train.py",
    "--evry 3 train.py",
    "--every train.py",
    "--every 0 train.py",
    "--every x train.py",
    "--every -1 train.py",
    "--check=1 train.py",
    "--output-format yaml train.py",
    "-qx train.py",
    "-o",
    "--select",
)


def _typers(words):
    context = get_command(app).commands["run"].make_context("run", list(words))
    return context.params


def _same(value):
    return None if value in ([], ()) else list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("line", PLAIN)
def test_plain_line_is_parsed_as_by_typer(line):
    words = line.split()
    ours, typers = parsed(run, words), _typers(words)
    assert ours is not None
    assert ours.keys() == typers.keys()
    for name, value in ours.items():
        assert str(_same(value)) == str(_same(typers[name])), name


@pytest.mark.parametrize("line", NOT_PLAIN)
def test_what_is_not_plain_is_left_to_typer(line):
    assert parsed(run, line.split()) is None


def test_environment_gives_what_the_line_does_not(monkeypatch):
    monkeypatch.setenv("GRADSCOPE_OUTPUT_FORMAT", "json")
    monkeypatch.setenv("GRADSCOPE_OUTPUT_FILE", "x.json")
    given = parsed(run, ["--output-format", "full", "train.py"])
    assert (given["output_format"], given["output_file"]) == ("full", "x.json")
    monkeypatch.setenv("GRADSCOPE_OUTPUT_FORMAT", "yaml")
    assert parsed(run, ["train.py"]) is None
