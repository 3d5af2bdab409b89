"""Run before a command that was forked: its own children are forked too, from what it imported."""

import os
import signal
from contextlib import contextmanager
from pathlib import Path

import gradscope.cli.isolation
import gradscope.cli.worker


class Child:
    """A forked child, as far as a `Popen` of it is needed."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self, timeout: float | None = None) -> int:
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.pid = 0
        return code

    def end(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()


@contextmanager
def forked_child(shared: Path, folder: Path, *, is_apart: bool, is_silent: bool):
    pid = os.fork()
    if not pid:
        os.chdir(folder)
        if is_silent:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        else:
            os.dup2(2, 1)
        code = 1
        try:
            gradscope.cli.worker.main(str(shared))
            code = 0
        except SystemExit as ending:
            code = ending.code if isinstance(ending.code, int) else 1
        finally:
            os._exit(code)
    child = Child(pid)
    try:
        yield child
    finally:
        child.end()


gradscope.cli.isolation._child = forked_child
