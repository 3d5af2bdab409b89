"""How a run ended."""

from dataclasses import dataclass
from typing import ClassVar, Literal

EndingKind = Literal["returned", "exited", "raised", "interrupted", "stopped", "limited", "lost"]
"""`returned`: at the script's last line; `exited`: by `sys.exit`; `raised`: by an exception that
nothing caught; `interrupted`: by Ctrl-C; `stopped`: as an option of gradscope asked for. The script
went on after these: `limited`: as much was recorded as an option asked for; `lost`: gradscope could
not follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnding:
    """Why nothing more was recorded; a killed process leaves no such record."""

    table: ClassVar[str] = "run_ending"
    kind: EndingKind
    code: int | None = None
    """The script's exit code."""
    exception: str = ""
    """The class of the exception."""
    message: str = ""
    """The first line of what the exception says, or the option or the reason."""
    file: str = ""
    """Where it was raised, in code that is not installed if there is such; empty if not known."""
    line: int | None = None
