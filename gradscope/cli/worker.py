"""The child process of `gradscope check`: runs one target once, and writes what it saw."""

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
from pathlib import Path

from gradscope.cli.errors import VERBOSITY, BugReport, show_error
from gradscope.cli.job import Job, recording_in, stacks_in, write_failure
from gradscope.cli.running import record_target
from gradscope.cli.streams import reserved_stdout
from gradscope.errors import ExitCode, GradscopeError

# Here, before user code can put a module of the same name in the way of what it imports.
from gradscope.recording.store import save_recording

_PR_SET_PDEATHSIG = 1
"""Constant from <sys/prctl.h>."""


def main(folder: str) -> None:
    """Do the job of a folder, and exit.

    Args:
        folder: Holds the job; the recording and all else that the parent reads is written there.
    """
    shared = Path(folder)
    job = Job.read(shared)
    VERBOSITY.level = job.level
    _end_with_parent()
    own = os.getpid()
    with contextlib.ExitStack() as stack, BugReport():
        stacks = stack.enter_context(stacks_in(shared).open("w"))
        if hasattr(signal, "SIGUSR1"):  # how the parent asks where a run is that takes too long
            faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True, chain=False)
        faulthandler.enable()
        try:
            with reserved_stdout():
                recording = record_target(job.spec, job.options, job.trial, command=job.command)
            if os.getpid() == own:  # and no copy of it, which the user's code has forked
                save_recording(recording, recording_in(shared), force=True)
        except GradscopeError as error:
            show_error(error)
            write_failure(shared, error)
            sys.exit(ExitCode.CANNOT_JUDGE)
        except KeyboardInterrupt:
            sys.exit(ExitCode.INTERRUPTED)  # the parent knows whether it was Ctrl-C
        except BaseException as error:
            is_bug = isinstance(error, Exception)
            what = "this is a bug in gradscope" if is_bug else "the run was left"
            told = f"{type(error).__name__}: {error}"
            write_failure(shared, GradscopeError(what, cause=told))
            raise


def _end_with_parent() -> None:
    """Have this process killed when its parent is, which then cannot do it, where Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
