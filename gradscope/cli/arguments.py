"""What is given to a command beside its options, and what of it is for the target's file."""

import shlex
import sys
from collections.abc import Sequence

from gradscope.errors import GradscopeError


def given_arguments(args: Sequence[str] | None) -> dict[str, tuple[str, ...]]:
    """Return what the file is to see as `sys.argv`, under its name in the configuration."""
    return {"args": tuple(args)} if args else {}


def check_file_arguments(args: list[str] | None) -> None:
    """Make sure that what follows TARGET was meant for the file.

    Raises:
        GradscopeError: There is no `--` before it.
    """
    if args and "--" not in sys.argv:
        raise GradscopeError(
            f"unexpected argument {args[0]!r}: expected one TARGET",
            help=f"arguments for the target's file go after --: -- {shlex.join(args)}",
        )


def split_arguments(
    given: Sequence[str], command_line: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what was given before `--`, and what after it, which is for the targets' files.

    Args:
        given: All positional arguments; the parser has dropped the `--`.
        command_line: Where it still stands.
    """
    if "--" not in command_line:
        return tuple(given), ()
    after = len(command_line) - command_line.index("--") - 1
    return tuple(given[: len(given) - after]), tuple(given[len(given) - after :])
