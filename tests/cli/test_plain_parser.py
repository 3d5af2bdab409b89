"""Command lines without typer: what is parsed is what typer makes of it."""

import pytest
from typer.main import get_command

from gradscope.cli.app import app
from gradscope.cli.shell.commands import COMMANDS, function_of
from gradscope.cli.shell.plain_parser import parsed

PLAIN = (
    "run train.py",
    "run train.py --lr 0.1 -q --check",
    "run -m package.train -m",
    "run -- train.py",
    "run --every 3 --tensor-every=0 --tensors-at 5 --tensors-at 7 train.py",
    "run -qf --save=x.gradscope -o report.html train.py",
    "run -oreport.html --open train.py a b",
    "run --output-format json --output-file - --color never train.py",
    "run --check --fail-fast --fail-level warning --max-warnings 3 train.py",
    "run --select GS1 --select flow --ignore GS101 --config x.toml train.py",
    "run --keep-gradients sketch --keep-gradients-every 7 --max-steps 9 --stop-after 8 train.py",
    "run --no-tensors --live --every 1 --every 2 train.py",
    "report a.gradscope",
    "report a.gradscope -o x.html b.gradscope --quiet",
    "report --step 3 --select GS1 -- a.gradscope -b.gradscope",
    "report a.gradscope --explain GS201 --output-format json",
    "check",
    "check a.gradscope runs/ -q",
    "check model.py --seeds 3 --fail-level warning --max-warnings 2 -- --lr 3",
    "check --also x.sarif --also junit=y.xml a.gradscope --color always",
    "clip-report a.gradscope b.gradscope -o -",
    "clip-report model.py --max-norm auto --batches 3 --per-layer",
    "compare a.gradscope b.gradscope --fail-on-regression",
    "compare model.py --vary seed=0,1",
    "export a.gradscope --to csv -o folder --force",
    "export a.gradscope b.gradscope logs --to tensorboard -q",
    "inspect model.py:Net --batch x --steps 3 -- a b --c",
    "view --port 8000",
    "rule GS201",
    "config",
)
NOT_PLAIN = (
    "run",
    "run -h",
    "run --help train.py",
    "run --evry 3 train.py",
    "run --every train.py",
    "run --every 0 train.py",
    "run --every x train.py",
    "run --every -1 train.py",
    "run --check=1 train.py",
    "run --output-format yaml train.py",
    "run -qx train.py",
    "run -o",
    "run --select",
    "report -h",
    "report --quiet",
    "report a.gradscope --step -1",
    "report a.gradscope --step",
    "export a.gradscope",
    "export a.gradscope --to yaml",
    "check --exit-zer",
    "view --port 99999",
    "rule GS201 GS202",
)


def _plain(line):
    name, *words = line.split()
    return parsed(function_of(name), words, is_interspersed=COMMANDS[name].is_interspersed)


def _typers(line):
    name, *words = line.split()
    return get_command(app).commands[name].make_context(name, words).params


def _same(value):
    return None if value in ([], ()) else list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("line", PLAIN)
def test_plain_line_is_parsed_as_by_typer(line):
    ours, typers = _plain(line), _typers(line)
    assert ours is not None
    assert ours.keys() == typers.keys()
    for name, value in ours.items():
        assert str(_same(value)) == str(_same(typers[name])), name


@pytest.mark.parametrize("line", NOT_PLAIN)
def test_what_is_not_plain_is_left_to_typer(line):
    assert _plain(line) is None


def test_environment_gives_what_the_line_does_not(monkeypatch):
    monkeypatch.setenv("GRADSCOPE_OUTPUT_FORMAT", "json")
    monkeypatch.setenv("GRADSCOPE_OUTPUT_FILE", "x.json")
    given = _plain("run --output-format full train.py")
    assert (given["output_format"], given["output_file"]) == ("full", "x.json")
    monkeypatch.setenv("GRADSCOPE_OUTPUT_FORMAT", "yaml")
    assert _plain("run train.py") is None
