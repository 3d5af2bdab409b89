"""`gradscope config`: what holds, and where it comes from."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gradscope.cli.app import app
from gradscope.config import keys, read_configuration
from gradscope.config.document import Source
from gradscope.config.listing import Entry, entries
from gradscope.errors import GradscopeError

CONFIGURED = """[tool.gradscope]
fail-level = "warning"
seeds = 3
max-grad-norm = 100
baseline = "known.json"

[tool.gradscope.rules.dead-unit]
rows = 32
error_share = inf

[tool.gradscope.grad-norms]
"encoder.*" = { max = 10.0 }

[tool.gradscope.per-module-ignores]
"backbone.*" = ["GS204"]

[tool.gradscope.targets]
small = "model.py:Net(hidden=8)"

[tool.gradscope.targets.large]
target = "model.py"
args = ["--x", ""]
seeds = 1
"""


def listed(key=None):
    return {entry.key: entry for entry in entries(read_configuration(), key)}


def run(*arguments, width=80):
    return CliRunner().invoke(app, ["config", *arguments], env={"COLUMNS": str(width)})


def test_every_key_of_the_top_level_is_listed_and_what_is_set_below(project):
    assert list(listed()) == list(keys.TOP_LEVEL)
    assert all(entry.source is None for entry in listed().values())
    project(CONFIGURED)
    found = listed()
    assert set(found) - set(keys.TOP_LEVEL) == {
        "rules.dead-unit.rows",
        "rules.dead-unit.error_share",
        'grad-norms."encoder.*".max',
        'per-module-ignores."backbone.*"',
        "targets.small.target",
        "targets.large.target",
        "targets.large.args",
        "targets.large.seeds",
    }
    assert found["fail-level"] == Entry(
        path=("fail-level",),
        value="warning",
        default="error",
        source=Source(file="pyproject.toml", line=2),
    )
    assert found["seed"] == Entry(path=("seed",), value=0, default=0)
    assert found["max-grad-norm"].value == 100
    assert found["rules.dead-unit.rows"].default == 64
    assert found["targets.small.target"].source == Source(file="pyproject.toml", line=18)


def test_key_narrows_and_shows_what_nobody_set(project):
    project(CONFIGURED)
    assert list(listed("seeds")) == ["seeds"]
    assert list(listed("tool.gradscope.seeds")) == ["seeds"]
    assert {"rows", "samples"} <= {one.path[-1] for one in listed("rules.dead-unit").values()}
    assert len(listed("rules")) > len(listed("rules.dead-unit"))
    for key in ('per-module-ignores."backbone.*"', "per-module-ignores.backbone.*"):
        assert [one.value for one in listed(key).values()] == [("GS204",)]
    small = listed("targets.small")
    assert list(small) == [f"targets.small.{key}" for key in keys.OF_TARGET]
    seeds = small["targets.small.seeds"]
    assert (seeds.value, seeds.source.line, seeds.is_inherited) == (3, 3, True)
    seed = small["targets.small.seed"]
    assert (seed.value, seed.source, seed.is_inherited) == (0, None, False)
    large = listed("targets.large.seeds")["targets.large.seeds"]
    assert (large.value, large.source.line, large.is_inherited) == (1, 23, False)


@pytest.mark.parametrize(
    ("key", "help_text"),
    [
        ("seedz", "did you mean `seed`?"),
        ("targets.smal", "did you mean `targets.small`?"),
        ("rules.GS105", "did you mean `rules.dead-unit`?"),
        ("GS105", "did you mean `rules.dead-unit`?"),
        ("Xyzzy", "gradscope config lists every key"),
        ("rules.dead", "did you mean `rules.dead-unit`?"),
    ],
)
def test_unknown_key_is_an_error(key, help_text, project):
    project(CONFIGURED)
    with pytest.raises(GradscopeError) as caught:
        entries(read_configuration(), key)
    assert caught.value.what == f"unknown key `{key}`"
    assert caught.value.help == help_text


def test_empty_table_is_no_unknown_key(project):
    for key in ("targets", "grad-norms", "per-module-ignores", "rules.gradient-cut"):
        assert listed(key) == {}
    assert "nothing is set" in run("targets").stdout


def test_text_fits_the_terminal_and_names_lines(project):
    project(CONFIGURED)
    done = run()
    lines = done.stdout.splitlines()
    assert done.exit_code == 0
    assert lines[0] == str(Path.cwd() / "pyproject.toml") or len(lines[0]) == 80
    assert all(len(line) <= 80 for line in lines)
    rows = [" ".join(line.split()) for line in lines]
    assert "fail-level warning (default error) pyproject.toml:2" in rows
    assert "device cpu default" in rows
    assert "timeout — default" in rows
    assert "[tool.gradscope.targets.large]" in rows
    assert 'args --x, "" pyproject.toml:22' in rows
    assert '"backbone.*" GS204 pyproject.toml:15' in rows


@pytest.mark.parametrize("width", [20, 40, 200])
def test_text_is_whole_at_any_width(width, project):
    project(CONFIGURED)
    text = "".join(run("targets.small.target", width=width).stdout.split())
    assert "targetmodel.py:Net(hidden=8)pyproject.toml:18" in text


def test_json_has_a_stable_shape(project):
    project(CONFIGURED)
    found = json.loads(run("--output-format", "json").stdout)
    assert list(found) == ["schema_version", "file", "folder", "keys"]
    assert found["schema_version"] == "1.0"
    assert found["file"] == str(Path.cwd() / "pyproject.toml")
    assert found["folder"] == str(Path.cwd())
    by_key = {one.pop("key"): one for one in found["keys"]}
    assert by_key["fail-level"] == {
        "value": "warning",
        "default": "error",
        "source": {"file": "pyproject.toml", "line": 2},
        "is_inherited": False,
    }
    assert by_key["lr"] == {"value": None, "default": None, "source": None, "is_inherited": False}
    assert by_key["targets.large.args"]["value"] == ["--x", ""]
    assert by_key["rules.dead-unit.error_share"]["value"] == "Infinity"
    assert by_key["seeds"]["value"] == 3


def test_json_without_a_file(project):
    found = json.loads(run("seed", "--output-format", "json").stdout)
    assert (found["file"], found["folder"]) == (None, str(Path.cwd()))
    assert [one["key"] for one in found["keys"]] == ["seed"]


def test_output_file_may_not_be_the_configuration(project):
    project(CONFIGURED)
    done = run("--config", "pyproject.toml", "-o", "pyproject.toml")
    assert isinstance(done.exception, GradscopeError)
    assert "would overwrite" in str(done.exception)
    assert Path("pyproject.toml").read_text() == CONFIGURED


def test_names_that_would_rule_the_terminal_are_escaped(project):
    project('[tool.gradscope.per-module-ignores]\n"a\\u001b[31m[/x]" = []\n')
    text = run().stdout
    assert "\x1b" not in text and "[/x]" in text
