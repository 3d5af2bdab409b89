"""Parses plain command lines without typer, whose import takes longer than the parsing.

Other lines, such as a request for help or a misspelt option, are left to typer.
"""

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, get_args, get_origin

from gradscope.options.declaration import Argument, Setting, without_none


class _NotPlainError(Exception):
    """The command line is for typer."""


def parsed(
    command: Callable[..., None], words: Sequence[str], *, is_interspersed: bool = True
) -> dict[str, object] | None:
    """Return the values of a command's parameters; None for a command line that is not plain.

    Args:
        command: The command, with declared options and arguments.
        words: The words of the command line after the command.
        is_interspersed: Whether options may follow arguments. Otherwise all that follows the first
            argument belongs to the last one.
    """
    parameters = [_Parameter(one) for one in inspect.signature(command).parameters.values()]
    try:
        return _Line(words, parameters, is_interspersed=is_interspersed).values()
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
        least, most = self._settings.get("min"), self._settings.get("max")
        # `int` also reads `1_000` and `+1`: typer decides on them.
        if not text.isascii() or not text.isdecimal():
            raise _NotPlainError
        number = int(text)
        is_less = isinstance(least, int | float) and number < least
        if is_less or (isinstance(most, int | float) and number > most):
            raise _NotPlainError
        return number

    def not_given(self) -> object:
        """Return the value of the environment variable, or the default without one."""
        variable = self._settings.get("envvar")
        text = os.environ.get(variable, "") if isinstance(variable, str) else ""
        if not text and self.default is inspect.Parameter.empty:
            raise _NotPlainError
        return self.value(text) if text else self.default


class _Line:
    """A command line, read from its first word on."""

    def __init__(
        self, words: Sequence[str], parameters: Sequence[_Parameter], *, is_interspersed: bool
    ) -> None:
        self._words = iter(words)
        self._parameters, self._is_interspersed = parameters, is_interspersed
        self._options = {name: one for one in parameters for name in one.names}
        self._given: dict[str, object] = {}

    def values(self) -> dict[str, object]:
        self._assign(self._positional_words())
        return {
            one.name: self._given[one.name] if one.name in self._given else one.not_given()
            for one in self._parameters
        }

    def _positional_words(self) -> list[str]:
        """Take the options, and return the other words."""
        found: list[str] = []
        for word in self._words:
            if word == "--":
                return [*found, *self._words]
            # A dash alone is a value, and stands for a stream.
            if len(word) > 1 and word.startswith("-"):
                self._take(word)
                continue
            found.append(word)
            if not self._is_interspersed:
                return [*found, *self._words]
        return found

    def _assign(self, words: Sequence[str]) -> None:
        """Give the arguments their words: a list takes all that is left."""
        if "" in words[:1]:
            raise _NotPlainError
        left = list(words)
        for argument in (one for one in self._parameters if one.is_argument):
            if argument.is_list and left:
                self._given[argument.name] = [argument.value(word) for word in left]
                left = []
            elif left:
                self._given[argument.name] = argument.value(left.pop(0))
        if left:
            raise _NotPlainError

    def _take(self, word: str) -> None:
        if word.startswith("--"):
            name, equals, text = word.partition("=")
            self._put(name, text if equals else None)
            return
        # Flags may share a dash; what follows the letter of another option is its value.
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
