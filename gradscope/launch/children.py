"""CPU time of child processes, which are not recorded."""

import os

TELLING_SECONDS = 1.0
"""CPU seconds above which child processes are reported. The import of torch alone takes more."""


def seconds_of_children() -> float:
    """Return the CPU seconds of this process's children that have ended; 0 on Windows."""
    times = os.times()
    return times.children_user + times.children_system
