"""What the shell suggests for an unfinished word; nothing here imports torch."""

import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import get_args

from gradscope.config.formats import OutputFormat
from gradscope.errors import GradscopeError
from gradscope.options.declaration import Parameter

_RECORDING = ".gradscope"
_FILES = 200
"""Largest number of suggested files."""
Suggestion = tuple[str, str]
"""A word and its help."""


def completer_of(parameter: Parameter, name: str) -> Callable[[str], list[Suggestion]] | None:
    """Return the function that completes the values of a parameter; None leaves it to the shell.

    Args:
        parameter: Declaration of the parameter.
        name: Its name in the command's function.
    """
    found = _BY_NAME.get(name) or _BY_PLACEHOLDER.get(str(parameter.settings.get("metavar")))
    if found is None:
        return None
    suggestions = found
    return lambda incomplete: list(_fitting(suggestions(incomplete), incomplete))


def _fitting(found: Iterable[Suggestion], incomplete: str) -> Iterator[Suggestion]:
    """Yield the words that continue what is typed; of a list, what follows the last comma."""
    done, comma, _ = incomplete.rpartition(",")
    for word, told in found:
        whole = f"{done}{comma}{word}"
        if whole.lower().startswith(incomplete.lower()):
            yield whole, told


def rules(incomplete: str) -> Iterator[Suggestion]:
    """Yield codes, names and families of rules."""
    from gradscope.rules.catalogue import RULES
    from gradscope.rules.rule import FAMILIES

    for rule in RULES:
        yield rule.code, rule.name
    for rule in RULES:
        yield rule.name, rule.code
    yield from ((family, "family of rules") for family in FAMILIES.values())


def targets(incomplete: str) -> Iterator[Suggestion]:
    """Yield the configured targets, and files that may hold one."""
    yield from chain(_configured(), _files(incomplete, ".py"))


def recordings(incomplete: str) -> Iterator[Suggestion]:
    """Yield recordings."""
    yield from _files(incomplete, _RECORDING)


def targets_and_recordings(incomplete: str) -> Iterator[Suggestion]:
    """Yield both."""
    yield from chain(targets(incomplete), recordings(incomplete))


def _configured() -> Iterator[Suggestion]:
    from gradscope.config import read_configuration

    try:
        names = read_configuration().targets
    except GradscopeError:
        # A suggestion is no place for an error.
        return
    yield from ((name, "configured target") for name in names)


def _files(incomplete: str, ending: str) -> Iterator[Suggestion]:
    """Yield folders, and files with an ending, in the folder of an unfinished path."""
    folder = incomplete.rpartition("/")[0]
    before = f"{folder}/" if "/" in incomplete else ""
    try:
        found = sorted(Path(before or ".").iterdir())
    except OSError:
        return
    for path in found[:_FILES]:
        if path.is_dir() and not path.name.startswith("."):
            yield f"{before}{path.name}/", ""
        elif path.suffix == ending:
            yield f"{before}{path.name}", ""


def optimizers(incomplete: str) -> Iterator[Suggestion]:
    """Yield the optimizers of torch, from its files."""
    # Nobody waits for the import of torch while typing.
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        return
    files = (Path(torch.origin).parent / "optim").glob("*.py")
    classes = (name for path in files for name in _OPTIMIZER.findall(path.read_text("utf-8")))
    yield from ((name.lower(), "") for name in sorted(classes))


_OPTIMIZER = re.compile(r"^class ([A-Z]\w*)\((?:Optimizer|Adam)\):", re.MULTILINE)


def formats(incomplete: str) -> Iterator[Suggestion]:
    """Yield the formats of further reports, as `--also` takes them."""
    yield from ((f"{one}=", "") for one in get_args(OutputFormat))


_Source = Callable[[str], Iterator[Suggestion]]
_BY_NAME: Mapping[str, _Source] = {"optimizer": optimizers, "explain": rules}
_BY_PLACEHOLDER: Mapping[str, _Source] = {
    "RULE": rules,
    "[RULE]": rules,
    "TARGET": targets,
    "TARGET|RECORDING": targets_and_recordings,
    "TARGET|RECORDING...": targets_and_recordings,
    "RECORDING": recordings,
    "FORMAT=FILE": formats,
}
