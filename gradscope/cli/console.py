"""Builds the one rich console of a stream, with colour or without."""

import os
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console

ColorChoice = Literal["auto", "always", "never"]

WIDTH_OFF_TERMINAL = 120


def wants_color(choice: ColorChoice, stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether to write colour.

    `--color` comes first, then NO_COLOR, then FORCE_COLOR, then the terminal. Empty variables do
    not count.
    """
    if choice != "auto":
        return choice == "always"
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR"):
        return True
    return stream.isatty() and environment.get("TERM") != "dumb"


def make_console(stream: TextIO, choice: ColorChoice) -> "Console":
    """Return a console for a stream; it prints names as they are, never as markup."""
    # Deferred: the import draws random numbers, which would change those of a script.
    from rich.console import Console

    has_color = wants_color(choice, stream, os.environ)
    is_terminal = stream.isatty()
    console = Console(
        file=stream,
        # rich alone would still write bold escapes under FORCE_COLOR together with NO_COLOR.
        color_system="auto" if has_color else None,
        force_terminal=has_color,
        no_color=not has_color,
        # By default, rich takes `[...]` in names for markup and `:bug:` for an emoji, and colours
        # numbers.
        markup=False,
        highlight=False,
        emoji=False,
        width=_width(is_terminal, os.environ.get("COLUMNS", "")),
    )
    # rich may find no colours although they are asked for, as under TERM=dumb.
    if has_color and console.color_system is None:
        return Console(
            file=stream,
            color_system="standard",
            force_terminal=True,
            no_color=False,
            markup=False,
            highlight=False,
            emoji=False,
            width=console.width,
        )
    return console


def _width(is_terminal: bool, columns: str) -> int | None:
    """Return the width of a console; None leaves it to rich, which reads `COLUMNS` first."""
    if columns.isdigit() and int(columns) == 0:  # some terminals report an unknown width as 0
        return shutil.get_terminal_size().columns if is_terminal else WIDTH_OFF_TERMINAL
    return None if is_terminal or columns else WIDTH_OFF_TERMINAL
