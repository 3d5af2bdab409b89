"""Runs a program as python would: the environment says that gradscope is off."""

from typing import NoReturn

from gradscope.cli.errors import show_error, write_line
from gradscope.cli.run import PlainRun
from gradscope.errors import ExitCode
from gradscope.launch.execution import execute, leave
from gradscope.launch.program import CannotRunError
from gradscope.switch import OFF


def launch_plainly(planned: PlainRun) -> NoReturn:
    """Run a program to its end, and end this process as the program would."""
    if planned.is_checked:  # with --quiet too: it did not pass
        write_line(f"note: {OFF} is set: {planned.program.name} is not checked")
    try:
        ending = execute(planned.program, lambda _: None)
    except CannotRunError as error:
        show_error(error)
        raise SystemExit(ExitCode.CANNOT_JUDGE) from None
    leave(ending, ending.code)
