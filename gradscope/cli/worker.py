"""The child process of `gradscope check`: runs one target once, and writes what it saw."""

import contextlib
import faulthandler
import signal
import sys
from pathlib import Path

from gradscope.cli.errors import LOGGER, BugReport, show_error
from gradscope.cli.job import Job, recording_in, stacks_in, write_failure
from gradscope.cli.running import record_target
from gradscope.cli.streams import reserved_stdout
from gradscope.errors import ExitCode, GradscopeError


def main(folder: str) -> None:
    """Do the job of a folder, and exit.

    Args:
        folder: Holds the job; the recording and all else that the parent reads is written there.
    """
    shared = Path(folder)
    job = Job.read(shared)
    LOGGER.setLevel(job.level)
    with contextlib.ExitStack() as stack, BugReport():
        stacks = stack.enter_context(stacks_in(shared).open("w"))
        if hasattr(signal, "SIGUSR1"):  # how the parent asks where a run is that takes too long
            faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True, chain=False)
        faulthandler.enable()
        try:
            with reserved_stdout():
                recording = record_target(job.spec, job.options, job.trial, command=job.command)
            from gradscope.recording.store import save_recording

            save_recording(recording, recording_in(shared), force=True)
        except GradscopeError as error:
            write_failure(shared, error)
            show_error(error)
            sys.exit(ExitCode.CANNOT_JUDGE)
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            write_failure(shared, GradscopeError("this is a bug in gradscope", cause=told))
            raise
