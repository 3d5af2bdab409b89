"""The end of a run."""

from dataclasses import dataclass
from typing import ClassVar, Literal

EndingKind = Literal["returned", "exited", "raised", "interrupted", "stopped", "limited", "lost"]
"""`returned`: at the script's last line; `exited`: by `sys.exit`; `raised`: by an uncaught
exception; `interrupted`: by Ctrl-C; `stopped`: requested by an option of gradscope. The script
continued after these: `limited`: the requested number of steps was recorded; `lost`: gradscope
could not follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnding:
    """Why recording ended; a killed process leaves no such record."""

    table: ClassVar[str] = "run_ending"
    kind: EndingKind
    code: int | None = None
    """Exit code of the script."""
    exception: str = ""
    """Class of the exception."""
    message: str = ""
    """First line of the exception's message, or the option or the reason."""
    file: str = ""
    """File where it was raised, preferably not installed code; empty if unknown."""
    line: int | None = None
