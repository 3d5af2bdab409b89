"""Words an error of the parser as every other error: one line, and the command that helps."""

import re
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import cast

import typer

from gradscope.errors import GradscopeError

_COMMANDS: Mapping[str, str] = {
    "analyse": "gradscope inspect model.py",
    "analyze": "gradscope inspect model.py",
    "dashboard": "gradscope view",
    "debug": "gradscope run train.py",
    "diagnose": "gradscope inspect model.py",
    "diff": "gradscope compare before.gradscope after.gradscope",
    "explain": "gradscope rule CODE",
    "help": "gradscope COMMAND -h",
    "html": "gradscope report run.gradscope -o run.html",
    "lint": "gradscope check model.py",
    "open": "gradscope report run.gradscope -o run.html --open",
    "profile": "gradscope run train.py",
    "record": "gradscope run --save run.gradscope train.py",
    "rules": "gradscope rule",
    "serve": "gradscope view",
    "show": "gradscope report run.gradscope",
    "test": "gradscope check model.py",
    "trace": "gradscope run train.py",
    "train": "gradscope run train.py",
    "ui": "gradscope view",
    "version": "gradscope --version",
    "watch": "gradscope run --live train.py",
}
"""By word: the command line that does what other tools call by it."""

_OPTIONS: Mapping[str, str] = {
    "--concise": "add --output-format concise",
    "--html": "add -o report.html",
    "--json": "add --output-format json",
    "--junit": "add --output-format junit",
    "--markdown": "add --output-format markdown",
    "--sarif": "add --output-format sarif",
}
"""By option: how gradscope spells it."""

_MISSING = re.compile(r"no such (command '(?P<command>.+)'|option: (?P<option>--[\w-]+).*)$")
_TRAINS = re.compile(rb"\.backward\(|\.fit\(|\.train\(\)")


def meant(text: str) -> str | None:
    """Return what to type instead, for an error of the parser; None if that is unknown."""
    found = _MISSING.match(text)
    if found is None:
        return None
    option = found["option"]
    return _command_for(found["command"]) if option is None else _OPTIONS.get(option)


def _command_for(word: str) -> str | None:
    path = Path(word)
    if path.suffix == ".gradscope":
        return f"gradscope report {quote(word)}"
    # A path without a name, as `.` and `/`, can have no suffix.
    if path.suffix == ".py" or (path.name and path.with_suffix(".py").is_file()):
        file = path.with_suffix(".py")
        return f"gradscope {_verb(file)} {quote(str(file))}"
    return _COMMANDS.get(word.lower())


def _verb(file: Path) -> str:
    """Return `run` for a script that trains, `inspect` for a file that only has a model."""
    try:
        return "run" if _TRAINS.search(file.read_bytes()) else "inspect"
    except OSError:
        return "run"


_NEEDED = (
    (re.compile(r"Input should be a valid integer.*"), "a whole number is needed"),
    (re.compile(r"Input should be a valid number.*"), "a number is needed"),
    (re.compile(r"Input should be greater than or equal to (\S+)"), r"at least \1 is needed"),
    (re.compile(r"Input should be less than or equal to (\S+)"), r"at most \1 is needed"),
)
"""What the parser says of a wrong value, and the same in words."""

UsageError = cast("type[Exception]", typer.BadParameter.__base__)
"""Base of the parser's errors. typer exports only its subclasses."""


def worded(error: Exception) -> GradscopeError:
    """Return an error of the parser in gradscope's words."""
    text = " ".join(getattr(error, "format_message", error.__str__)().split())
    text = text.replace(": Value error, ", ": ").removesuffix(".")
    for pattern, needed in _NEEDED:
        text = pattern.sub(needed, text)
    context = getattr(error, "ctx", None)
    page = f"{context.command_path} -h" if context is not None else "gradscope -h"
    text = text[:1].lower() + text[1:]
    if (instead := meant(text)) is not None:
        return GradscopeError(text.partition(" (Possible")[0], help=instead)
    return GradscopeError(text, help=page)
