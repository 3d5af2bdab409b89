"""What gradscope tells a user who can mend the cause."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command; they are part of the public interface."""

    OK = 0
    """Nothing at or above the fail level was found."""
    FINDINGS = 1
    """A gate found something at or above its fail level."""
    CANNOT_JUDGE = 2
    """Usage, configuration, a target that does not load, or code of the user's that raised."""
    INTERRUPTED = 130
    """Ctrl-C."""


class GradscopeError(Exception):
    """Something the user can fix, told in up to three lines.

    Args:
        what: What is wrong, naming the offending value.
        cause: Why, where that is known and is not already said.
        help: One thing to try, as a command or a line of code.
    """

    def __init__(self, what: str, *, cause: str | None = None, help: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.cause = cause
        self.help = help

    def __str__(self) -> str:
        """All of it, one line each, as a traceback ends with."""
        extra = (("cause", self.cause), ("help", self.help))
        return "\n".join([self.what, *(f"  {name}: {text}" for name, text in extra if text)])


class UserCodeError(GradscopeError):
    """The user's own code raised; `__cause__` is its exception, shown with the user's frames."""
