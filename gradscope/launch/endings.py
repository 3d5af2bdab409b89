"""How a program ended, for the record."""

import sysconfig
from pathlib import Path
from types import TracebackType

from gradscope.recording.run_ending import EndingKind, RunEnding

_PACKAGE = f"{Path(__file__).resolve().parents[1]}/"
_INSTALLED = ("site-packages", "dist-packages", "<frozen ")
_LONGEST = 120

RETURNED = RunEnding(kind="returned", code=0)
"""At the last line."""


_OPTION = "__gradscope_option__"


def stopping(option: str) -> SystemExit:
    """Return what ends a program as an option of gradscope asks for.

    Of no class of its own, which would end threads less silently.

    Args:
        option: As it was given: `--stop-after 5`.
    """
    leaving = SystemExit(0)
    setattr(leaving, _OPTION, option)
    return leaving


def ending_by(error: BaseException) -> RunEnding:
    """Return how a program ended that an exception has left."""
    option = vars(error).get(_OPTION)
    if isinstance(option, str):
        return RunEnding(kind="stopped", code=0, message=option)
    match error:
        case SystemExit(code=None):
            return RunEnding(kind="exited", code=0)
        case SystemExit(code=int(code)):
            return RunEnding(kind="exited", code=int(code))
        case SystemExit():
            return RunEnding(kind="exited", code=1, message=_first_line(error.code))
    kind: EndingKind = "interrupted" if isinstance(error, KeyboardInterrupt) else "raised"
    file, line = _position(error.__traceback__)
    return RunEnding(
        kind=kind,
        code=1,
        exception=type(error).__name__,
        message=_first_line(error),
        file=file,
        line=line,
    )


def _first_line(value: object) -> str:
    try:
        lines = str(value).split("\n")
    except Exception:  # noqa: BLE001 - it runs code of the program's
        return ""
    text = lines[0].strip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _position(traceback: TracebackType | None) -> tuple[str, int | None]:
    """Return the innermost line of the user's own; of installed code where there is none."""
    lines: list[tuple[str, int | None]] = []
    while traceback is not None:
        lines.append((traceback.tb_frame.f_code.co_filename, traceback.tb_lineno))
        traceback = traceback.tb_next
    lines = [position for position in lines if not position[0].startswith(_PACKAGE)]
    own = [position for position in lines if not _is_installed(position[0])]
    return (own or lines or [("", None)])[-1]


def _is_installed(file: str) -> bool:
    return file.startswith(sysconfig.get_path("stdlib")) or any(part in file for part in _INSTALLED)
