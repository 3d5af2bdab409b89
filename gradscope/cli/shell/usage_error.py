"""Words an error of the parser as every other error: one line, and the command that helps."""

import re
from typing import cast

import typer

from gradscope.cli.shell.meant_command import meant
from gradscope.errors import GradscopeError

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
