"""Errors that a user can fix, and the exit codes of the commands."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command. They are part of the public interface."""

    OK = 0
    """Nothing at or above the fail level was found."""
    FINDINGS = 1
    """A rule or a limit found something at or above the fail level."""
    CANNOT_JUDGE = 2
    """The usage or configuration is wrong, the target does not load, or the user's code raised."""
    INTERRUPTED = 130
    """Ctrl-C."""


class GradscopeError(Exception):
    """An error that the user can fix, described in up to three lines.

    Args:
        what: What is wrong, with the offending value.
        cause: The cause, if it is known and `what` does not state it.
        help: One thing to try, as a command or a line of code.
    """

    def __init__(self, what: str, *, cause: str | None = None, help: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.cause = cause
        self.help = help

    def __str__(self) -> str:
        """Return the whole message, one part per line, as it ends a traceback."""
        extra = (("cause", self.cause), ("help", self.help))
        return "\n".join([self.what, *(f"  {name}: {text}" for name, text in extra if text)])


class GuessNeededError(GradscopeError):
    """Error for a missing part of the target that `--allow-guesses` would guess."""


class UserCodeError(GradscopeError):
    """Error for an exception of the user's own code, its `__cause__`, shown with their frames."""
