import io

import pytest
from rich.text import Text

from gradscope.cli.console import make_console, wants_color
from gradscope.report.page import Page


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("choice", "is_terminal", "environment", "expected"),
    [
        ("auto", True, {}, True),
        ("auto", False, {}, False),
        ("auto", True, {"TERM": "dumb"}, False),
        ("auto", True, {"NO_COLOR": "1"}, False),
        ("auto", True, {"NO_COLOR": ""}, True),
        ("auto", False, {"FORCE_COLOR": "1"}, True),
        ("auto", False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colour_follows_the_order_of_choices(choice, is_terminal, environment, expected):
    stream = Terminal() if is_terminal else io.StringIO()
    assert wants_color(choice, stream, environment) is expected


@pytest.mark.parametrize("choice", ["never", "always"])
def test_console_writes_escapes_only_when_asked(choice, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    stream = io.StringIO()
    make_console(stream, choice).print(Text("x", style="bold red"))
    assert ("\x1b[" in stream.getvalue()) == (choice == "always")


def test_names_are_no_markup():
    stream = io.StringIO()
    make_console(stream, "never").print("layers[/mlp] blocks[mlp].w :smile:")
    assert stream.getvalue() == "layers[/mlp] blocks[mlp].w :smile:\n"


def test_width_off_a_terminal_is_fixed(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert make_console(io.StringIO(), "never").width == 120
    monkeypatch.setenv("COLUMNS", "77")
    assert make_console(io.StringIO(), "never").width == 77


@pytest.mark.parametrize(
    ("columns", "expected"), [("", 120), ("0", 120), ("00", 120), ("1", 1), ("72", 72)]
)
def test_width_off_a_terminal(columns, expected, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert make_console(io.StringIO(), "never").width == expected


def test_terminal_that_tells_no_width_has_one(monkeypatch):
    monkeypatch.setenv("COLUMNS", "0")
    assert make_console(Terminal(), "never").width > 0


@pytest.mark.parametrize(
    ("is_terminal", "environment", "expected"),
    [
        (True, {"TERM_PROGRAM": "vscode"}, True),
        (True, {"TERM": "xterm-kitty"}, True),
        (True, {"VTE_VERSION": "7200"}, True),
        (True, {"VTE_VERSION": "4205"}, False),
        (True, {"TERM": "xterm-256color"}, False),
        (True, {"TERM_PROGRAM": "vscode", "NO_COLOR": "1"}, False),
        (False, {"TERM_PROGRAM": "vscode", "FORCE_COLOR": "1"}, False),
    ],
)
def test_paths_are_links_on_terminals_that_know_them(
    is_terminal, environment, expected, monkeypatch, tmp_path
):
    for name in ("TERM_PROGRAM", "VTE_VERSION", "NO_COLOR", "WT_SESSION", "KONSOLE_VERSION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"TERM": "xterm", "FORCE_COLOR": ""} | environment).items():
        monkeypatch.setenv(name, value)
    stream = Terminal() if is_terminal else io.StringIO()
    file = tmp_path / "model.py"
    file.touch()
    console = make_console(stream, "always")
    shown = Page.of(console, "").location(f"{file}:26", 200)
    absent = Page.of(console, "").location(f"{tmp_path / 'absent.py'}:26", 200)
    console.print(shown, absent)
    link = f";{file.as_uri()}#26\x1b\\"
    assert (link in stream.getvalue()) is expected
    assert "absent.py#" not in stream.getvalue()
