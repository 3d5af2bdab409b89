"""Help pages of all commands."""

import re
import shlex

import pytest
from typer.testing import CliRunner

from gradscope.cli.app import app
from gradscope.cli.program import program_for
from gradscope.cli.shell.commands import COMMANDS, function_of
from gradscope.cli.shell.help import COMMAND_GROUPS, EXAMPLES, entries_of
from tests.nightly import some_on_push

FUNCTIONS = {name: function_of(name) for name in COMMANDS}


@pytest.fixture
def page(monkeypatch):
    """The help page of a command in a terminal of some columns, by its lines."""

    def shown(name, columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        result = CliRunner().invoke(
            app, [*([name] if name else []), "--help"], prog_name="gradscope"
        )
        assert result.exit_code == 0
        return result.output.splitlines()

    return shown


@pytest.mark.parametrize("name", ["", *FUNCTIONS])
@pytest.mark.parametrize("columns", [80, 140])
def test_pages_fit_the_terminal(page, name, columns):
    lines = page(name, columns)
    assert max(map(len, lines)) <= min(columns, 100)
    assert not [line for line in lines if line != line.rstrip()]
    assert "\\[" not in "\n".join(lines)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_option_is_listed_in_a_titled_group(page, name):
    entries = list(entries_of(FUNCTIONS[name]))
    text = " ".join(" ".join(page(name, 80)).split())
    assert "Options" not in {entry.group for entry in entries}
    for entry in entries:
        assert entry.names in text
        assert entry.text in text


@pytest.mark.parametrize("name", some_on_push(FUNCTIONS, 4))
def test_a_page_ends_with_two_examples_whose_options_exist(page, name):
    lines = page(name, 80)
    examples = lines[lines.index("Examples") + 1 :]
    assert [line.strip() for line in examples if line] == list(EXAMPLES[name])
    assert len(EXAMPLES[name]) == 2
    known = {
        word for one in entries_of(FUNCTIONS[name]) for word in re.findall(r"--?[\w-]+", one.names)
    }
    for example in EXAMPLES[name]:
        program, command, *words = shlex.split(example)
        own = words[: words.index("train.py")] if "train.py" in words else words
        assert (program, command) == ("gradscope", name)
        assert {word for word in own if word.startswith("-")} <= known


def test_the_program_lists_every_command_once():
    names = [name for _, names in COMMAND_GROUPS for name in names]
    assert sorted(names) == sorted(FUNCTIONS)
    assert set(EXAMPLES) == {"", *FUNCTIONS}


def test_choices_and_defaults_are_told_once(page):
    text = " ".join(" ".join(page("inspect", 140)).split())
    assert "--color auto|always|never" in text
    assert text.count("One of full, concise, json, jsonl") == 1
    assert text.count("Environment: GRADSCOPE_OUTPUT_FORMAT.") == 1
    assert "Default: Default" not in text


@pytest.mark.parametrize(
    ("line", "loaded"),
    [
        (["rule", "GS101"], ["rule"]),
        (["run", "train.py"], ["run"]),
        (["ruel"], list(COMMANDS)),
        (["--version"], list(COMMANDS)),
        ([], list(COMMANDS)),
    ],
)
def test_a_line_that_begins_with_a_command_loads_no_other(line, loaded):
    assert [command.name for command in program_for(line).registered_commands] == loaded
