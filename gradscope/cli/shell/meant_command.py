"""The command that a newcomer meant by a word or an option that gradscope does not have."""

import re
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

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
    if path.suffix == ".py" or path.with_suffix(".py").is_file():
        file = path.with_suffix(".py")
        return f"gradscope {_verb(file)} {quote(str(file))}"
    return _COMMANDS.get(word.lower())


def _verb(file: Path) -> str:
    """Return `run` for a script that trains, `inspect` for a file that only has a model."""
    try:
        return "run" if _TRAINS.search(file.read_bytes()) else "inspect"
    except OSError:
        return "run"
