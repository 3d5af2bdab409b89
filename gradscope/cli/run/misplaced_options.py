"""Finds options of gradscope that stand behind the script, and went to it."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

from gradscope.launch.program import Program
from gradscope.options.declaration import Argument, Parameter


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
