"""The commands, by name. Each takes many modules of its own, and is imported when it is called."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import NamedTuple


class Command(NamedTuple):
    """Where a command is, and how its line is read."""

    module: str
    """Module with its function, in `gradscope.cli`."""
    needs_words: bool = False
    """Whether it shows its help when it is called without words."""
    is_interspersed: bool = True
    """Whether options may follow arguments. What follows a script is its own, options too."""


COMMANDS: Mapping[str, Command] = {
    "inspect": Command("inspect", needs_words=True),
    "check": Command("check"),
    "clip-report": Command("clip_report"),
    "graph": Command("graph", needs_words=True),
    "report": Command("report", needs_words=True),
    "compare": Command("compare", needs_words=True),
    "view": Command("view"),
    "export": Command("export", needs_words=True),
    "fix": Command("fix", needs_words=True),
    "rule": Command("rule"),
    "config": Command("config"),
    "run": Command("run.command", needs_words=True, is_interspersed=False),
}


def function_of(name: str) -> Callable[..., None]:
    """Return the function of a command."""
    module = import_module(f"gradscope.cli.{COMMANDS[name].module}")
    function: Callable[..., None] = getattr(module, name.replace("-", "_"))
    return function
