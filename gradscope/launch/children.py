"""What the processes did that a program has started: they are not watched."""

import os

TELLING_SECONDS = 1.0
"""CPU time from which they are told of: to import torch alone takes more."""


def seconds_of_children() -> float:
    """Return the CPU seconds of this process's children that have ended; 0 on Windows."""
    times = os.times()
    return times.children_user + times.children_system
