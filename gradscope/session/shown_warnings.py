"""Shows the warnings of an inspected program once each, at the line of the program."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch

from gradscope.capture.source.lines import is_users

_BETWEEN = (str(Path(__file__).parents[1]), torch.overrides.__file__)
"""Files whose frames stand between a function of torch and the program only while it is watched."""


@contextmanager
def shown_at_users_lines() -> Iterator[None]:
    """Show each warning once, at the program's line, while a program is run several times.

    A warning with a `stacklevel` of 2 would name a line of gradscope, which calls the function for
    the program, and each probe would repeat it. Warnings that the program records itself are all
    recorded.
    """
    original = warnings._showwarnmsg  # type: ignore[attr-defined]
    shows = warnings._showwarnmsg_impl  # type: ignore[attr-defined]
    shown: set[tuple[str, type[Warning], str, int]] = set()

    def show(message: warnings.WarningMessage) -> None:
        if message.filename.startswith(_BETWEEN):
            frame = _users_frame(sys._getframe(1))
            if frame is not None:
                message.filename, message.lineno = frame.f_code.co_filename, frame.f_lineno
                message.line = None
        is_recorded = warnings._showwarnmsg_impl is not shows  # type: ignore[attr-defined]
        key = (str(message.message), message.category, message.filename, message.lineno)
        if is_recorded or key not in shown:
            shown.add(key)
            original(message)

    warnings._showwarnmsg = show  # type: ignore[attr-defined]
    try:
        yield
    finally:
        warnings._showwarnmsg = original  # type: ignore[attr-defined]


def _users_frame(frame: FrameType | None) -> FrameType | None:
    while frame is not None and not is_users(frame.f_code):
        frame = frame.f_back
    return frame
