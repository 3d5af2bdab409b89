"""Wrong command lines end in one line, the command that helps, and exit code 2."""

import pytest
from typer.testing import CliRunner

from gradscope.cli.app import app
from gradscope.cli.run.command import misplaced_options, run
from gradscope.errors import GradscopeError
from gradscope.launch.program import Program, check_program


@pytest.mark.parametrize(
    ("line", "what", "page"),
    [
        (["inspct"], "no such command 'inspct'. Did you mean 'inspect'?", "gradscope -h"),
        (["inspect", "x.py", "--overfitt"], "no such option: --overfitt", "gradscope inspect -h"),
        (["inspect", "x.py", "--steps", "-1"], "invalid value for '--steps'", "gradscope inspect"),
        (
            ["report", "x", "--step", "last"],
            "invalid value for '--step': a whole number is needed",
            "",
        ),
        (["inspect", "x.py", "--steps", "-1"], "invalid value for '--steps': at least 0 is", ""),
        (["help", "run"], "no such command 'help'", "gradscope COMMAND -h"),
        (["export", "x.gradscope"], "missing option '--to'", "gradscope export -h"),
        (["export", "x", "--to", "csvv"], "invalid value for '--to': 'csvv'", "gradscope export"),
        (["run", "--lr", "3", "train.py"], "no such option: --lr", "gradscope run -h"),
        (["explain", "GS101"], "no such command 'explain'", "gradscope rule CODE"),
        (["."], "no such command '.'", "gradscope -h"),
        (["/"], "no such command '/'", "gradscope -h"),
        (["a.gradscope"], "no such command 'a.gradscope'", "gradscope report a.gradscope"),
        (["report", "x", "--html"], "no such option: --html", "add -o report.html"),
    ],
)
def test_wrong_command_line_is_one_line(line, what, page):
    done = CliRunner().invoke(app, line, prog_name="gradscope")
    told = done.stderr.splitlines()
    assert done.exit_code == 2 and done.stdout == ""
    assert told[0].startswith(f"error: {what}")
    assert told[1].startswith(f"  help: {page}")
    assert len(told) == 2


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ("loss.backward()\n", "run"),
        ("trainer.fit(model)\n", "run"),
        ("class Net(nn.Module): ...\n", "inspect"),
    ],
)
def test_script_in_place_of_a_command_is_told_the_command(source, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my net.py").write_text(source)
    done = CliRunner().invoke(app, ["my net.py"], prog_name="gradscope")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[1] == f"  help: gradscope {command} 'my net.py'"


@pytest.mark.parametrize("line", [["--version"], ["rule", "--help"], ["rule", "GS201"]])
def test_right_command_line_exits_with_0(line):
    done = CliRunner().invoke(app, line, prog_name="gradscope")
    assert done.exit_code == 0 and done.stdout != ""


def test_script_name_too_long_for_the_system_is_told():
    program = Program(name="a" * 300 + ".py", arguments=(), is_module=False)
    with pytest.raises(GradscopeError, match="cannot open 'aaa"):
        check_program(program)


def test_interpreter_before_the_script_is_left_out():
    program = Program(name="python", arguments=("train.py", "--lr", "1"), is_module=False)
    with pytest.raises(GradscopeError) as raised:
        check_program(program)
    assert raised.value.help == "gradscope run train.py --lr 1"


@pytest.mark.parametrize(
    ("arguments", "source", "expected"),
    [
        ((), "import torch", []),
        (("--check",), "import torch", ["--check"]),
        (("--save=x.gradscope",), "import torch", ["--save=x.gradscope"]),
        (("--every", "2"), "import torch", ["--every 2"]),
        (("--no-tensors", "--lr", "1"), "import torch", ["--no-tensors"]),
        (("--save", "x"), "parser.add_argument('--save')", []),
        (("--check",), "@option\ndef main(check: bool): ...", []),
        (("--check",), "parser.parse_known_args()", []),
        (("--epochs", "3"), "import torch", []),
        (("-o", "x"), "import torch", []),  # too short to tell
    ],
)
def test_options_unknown_to_the_script_are_noticed(tmp_path, arguments, source, expected):
    script = tmp_path / "train.py"
    script.write_text(source)
    program = Program(name=str(script), arguments=arguments, is_module=False)
    assert list(misplaced_options(program, run)) == expected
