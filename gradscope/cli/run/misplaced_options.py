"""Finds options of gradscope that stand behind the script, and went to it."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

from gradscope.launch.program import Program
from gradscope.options.declaration import Argument, Parameter


def misplaced_options(program: Program, command: Callable[..., None]) -> Iterator[str]:
    """Yield the script's arguments that are options of the command and unknown to the script.

    Each has its value, as `--every 2`. A script knows an option if its file contains the option's
    name, as for `argparse`.
    """
    if program.is_module:
        return
    try:
        source = Path(program.name).read_text(errors="replace")
    except OSError:
        return
    if "parse_known_args" in source:
        return
    takes_value = dict(_names(command))
    for argument, following in zip(program.arguments, (*program.arguments, "")[1:], strict=True):
        name = argument.partition("=")[0]
        plain = name.lstrip("-")
        mentioned = any(text in source for text in {name, plain, plain.replace("-", "_")})
        if name in takes_value and len(plain) > 1 and not mentioned:
            has_value = takes_value[name] and argument == name and following
            yield f"{name} {following}" if has_value else argument


def _names(command: Callable[..., None]) -> Iterator[tuple[str, bool]]:
    """Yield the name of each option, and whether a value follows it."""
    for parameter in inspect.signature(command).parameters.values():
        told = get_args(parameter.annotation)[1]
        if isinstance(told, Parameter) and not isinstance(told, Argument):
            kind = get_args(parameter.annotation)[0]
            for names in told.names or (f"--{parameter.name.replace('_', '-')}",):
                for name in names.split("/"):
                    yield name, kind is not bool
