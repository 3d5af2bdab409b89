"""The child process of `gradscope check`: runs one target once, and writes its recording."""

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from gradscope.cli.console import reserved_stdout
from gradscope.cli.errors import VERBOSITY, BugReport, show_error, show_traceback
from gradscope.cli.processes.isolation import Job, recording_in, stacks_in, write_failure
from gradscope.cli.progress import progress_line
from gradscope.cli.running import record_target
from gradscope.errors import ExitCode, GradscopeError

# Imported before user code can shadow its imports by modules of the same names.
from gradscope.recording.store import save_recording

_PR_SET_PDEATHSIG = 1
"""Constant from <sys/prctl.h>."""


def main(folder: str) -> None:
    """Do the job of a folder, and exit.

    Args:
        folder: Folder of the job. The recording and the failure are written there too.
    """
    shared = Path(folder)
    job = Job.read(shared)
    VERBOSITY.level = job.level
    _end_with_parent()
    own = os.getpid()
    with contextlib.ExitStack() as stack, BugReport():
        stacks = stack.enter_context(stacks_in(shared).open("w"))
        if hasattr(signal, "SIGUSR1"):  # the parent asks a slow run for its line by it
            faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True, chain=False)
        # A crash in native code prints its stack.
        faulthandler.enable()
        try:
            if job.overlay:
                from gradscope.target.discovery.importing import install_overlay  # only for fixes

                install_overlay(job.overlay)
            with _progress_of(job), reserved_stdout():
                recording = record_target(job.spec, job.options, job.trial, command=job.command)
            if os.getpid() == own:  # not in a process that user code has forked
                save_recording(recording, recording_in(shared), force=True)
        except GradscopeError as error:
            (show_traceback if job.is_reported else show_error)(error)
            write_failure(shared, error)
            sys.exit(ExitCode.CANNOT_JUDGE)
        except KeyboardInterrupt:
            sys.exit(ExitCode.INTERRUPTED)  # the parent knows whether it was Ctrl-C
        except BaseException as error:
            # Without a failure in its folder, a process would count as killed.
            is_bug = isinstance(error, Exception)
            what = "this is a bug in gradscope" if is_bug else "the run was left"
            text = f"{type(error).__name__}: {error}"
            write_failure(shared, GradscopeError(what, cause=text))
            raise


def _progress_of(job: Job) -> AbstractContextManager[None]:
    return contextlib.nullcontext() if job.progress is None else progress_line(job.progress)


def _end_with_parent() -> None:
    """Have this process killed when its parent is killed, on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
