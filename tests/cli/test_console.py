import io

import pytest
from rich.text import Text

from gradscope.cli.console import make_console, wants_color


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
