"""Parses plain command lines without typer, whose import takes longer than the parsing.

Other lines, such as a request for help or a misspelt option, are left to typer.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args, get_origin

from gradscope.launch.program import Program
from gradscope.options.declaration import Argument, Parameter, Setting, without_none


class _NotPlainError(Exception):
    """The command line is for typer."""


def parsed(command: Callable[..., None], words: Sequence[str]) -> dict[str, object] | None:
    """Return the arguments of a command; None for a command line that is not plain.

    Options end at the first argument. All that follows belongs to the second argument.

    Args:
        command: The command, with declared options and arguments.
        words: The words of the command line after the command.
    """
    parameters = [_Parameter(one) for one in inspect.signature(command).parameters.values()]
    try:
        return _Line(words, parameters).values()
    except _NotPlainError:
        return None


class _Parameter:
    """An option or argument of a command."""

    def __init__(self, parameter: inspect.Parameter) -> None:
        self.name, self.default = parameter.name, parameter.default
        kind, told = get_args(parameter.annotation)
        self.is_argument = isinstance(told, Argument)
        self.names: tuple[str, ...] = told.names
        self._settings: dict[str, Setting] = told.settings
        kind = without_none(kind)  # None means that it is not given
        self.is_list = get_origin(kind) is list
        self._kind = get_args(kind)[0] if self.is_list else kind
        self.is_flag = self._kind is bool

    def value(self, text: str) -> object:
        """Return the value of a word."""
        if get_origin(self._kind) is Literal:
            if text not in get_args(self._kind):
                raise _NotPlainError
            return text
        if self._kind is int:
            return self._number(text)
        if self._kind in (str, Path):
            return self._kind(text)
        raise _NotPlainError

    def _number(self, text: str) -> int:
        least = self._settings.get("min")
        if not text.isascii() or not text.isdecimal():
            raise _NotPlainError
        number = int(text)
        if isinstance(least, int) and number < least:
            raise _NotPlainError
        return number

    def from_environment(self) -> object:
        """Return the value of the environment variable, or the default without one."""
        variable = self._settings.get("envvar")
        text = os.environ.get(variable, "") if isinstance(variable, str) else ""
        return self.value(text) if text else self.default


class _Line:
    """A command line, read from its first word on."""

    def __init__(self, words: Sequence[str], parameters: Sequence[_Parameter]) -> None:
        self._words = iter(words)
        self._parameters = parameters
        self._options = {name: one for one in parameters for name in one.names}
        self._given: dict[str, object] = {}

    def values(self) -> dict[str, object]:
        first, rest = (one for one in self._parameters if one.is_argument)
        for word in self._words:
            if word == "--":
                word = next(self._words, "")
            elif len(word) > 1 and word.startswith("-"):
                self._take(word)
                continue
            if not word:
                break
            self._given[first.name] = first.value(word)
            self._given[rest.name] = list(self._words) or rest.default
            return {
                one.name: self._given[one.name]
                if one.name in self._given
                else one.from_environment()
                for one in self._parameters
            }
        raise _NotPlainError

    def _take(self, word: str) -> None:
        if word.startswith("--"):
            name, equals, text = word.partition("=")
            self._put(name, text if equals else None)
            return
        for position, letter in enumerate(word[1:], start=2):
            if not self._option(f"-{letter}").is_flag:
                self._put(f"-{letter}", word[position:] or None)
                return
            self._put(f"-{letter}", None)

    def _option(self, name: str) -> _Parameter:
        if name not in self._options:
            raise _NotPlainError
        return self._options[name]

    def _put(self, name: str, text: str | None) -> None:
        option = self._option(name)
        if option.is_flag:
            if text is not None:
                raise _NotPlainError
            self._given[option.name] = True
            return
        text = next(self._words, None) if text is None else text
        if text is None:
            raise _NotPlainError
        value = option.value(text)
        if not option.is_list:
            self._given[option.name] = value
            return
        values = self._given.setdefault(option.name, [])
        assert isinstance(values, list)
        values.append(value)


def misplaced_options(program: Program, command: Callable[..., None]) -> Iterator[str]:
    """Yield the script's arguments that are options of the command and unknown to the script.

    A script knows an option if its file contains the option's name, as for `argparse`.
    """
    if program.is_module:
        return
    try:
        source = Path(program.name).read_text(errors="replace")
    except OSError:
        return
    if "parse_known_args" in source:
        return
    known = set(_names(command))
    for argument in program.arguments:
        name = argument.partition("=")[0]
        plain = name.lstrip("-")
        mentioned = any(text in source for text in {name, plain, plain.replace("-", "_")})
        if name in known and len(plain) > 1 and not mentioned:
            yield name


def _names(command: Callable[..., None]) -> Iterator[str]:
    for parameter in inspect.signature(command).parameters.values():
        told = get_args(parameter.annotation)[1]
        if isinstance(told, Parameter) and not isinstance(told, Argument):
            for name in told.names or (f"--{parameter.name.replace('_', '-')}",):
                yield from name.split("/")
