"""What `gradscope clip-report` reports on."""

from pathlib import Path
from typing import TYPE_CHECKING

from gradscope.cli.errors import show_note
from gradscope.errors import GradscopeError

if TYPE_CHECKING:
    from gradscope.config import Configuration

_SUFFIX = ".gradscope"


def is_recording(text: str) -> bool:
    """Return whether a target is the file of a recording."""
    return text.endswith(_SUFFIX)


def nearest(configuration: "Configuration") -> str:
    """Return what is meant where nothing is named, and say so.

    That is the configured target, else the newest recording in the working directory.

    Raises:
        GradscopeError: There is neither, or several targets are configured.
    """
    names = tuple(configuration.targets)
    if len(names) > 1:
        raise GradscopeError(
            f"{len(names)} targets are configured: {', '.join(names)}",
            help=f"name one: gradscope clip-report {names[0]}",
        )
    if names:
        show_note(f"clipping of `{names[0]}`, the configured target")
        return names[0]
    found = [path for path in Path().glob(f"*{_SUFFIX}") if path.is_file()]
    if not found:
        raise GradscopeError(
            "no target given, none configured, and no recording here",
            help="gradscope clip-report model.py, or record a run: gradscope run train.py",
        )
    newest = max(found, key=lambda path: (path.stat().st_mtime_ns, path.name))
    show_note(f"clipping of `{newest}`, the newest recording here")
    return str(newest)
