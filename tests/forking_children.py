"""Run before a command that was forked: its own children are forked too, from what it imported."""

import os
import signal
from contextlib import contextmanager
from pathlib import Path

import gradscope.cli.processes.isolation
import gradscope.cli.processes.side_by_side
import gradscope.cli.processes.worker


class Child:
    """A forked child, as far as a `Popen` of it is needed."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code = None

    def wait(self, timeout: float | None = None) -> int:
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.pid = 0
        return self.code

    def poll(self) -> int | None:
        if self.pid and os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            self.code = self.wait()
        return self.code

    def end(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()


@contextmanager
def forked_child(shared: Path, folder: Path, *, is_apart: bool, threads=None, output=None):
    pid = os.fork()
    if not pid:
        os.chdir(folder)
        if output is not None:
            os.dup2(output.fileno(), 2)
        os.dup2(2, 1)
        code = 1
        try:
            gradscope.cli.processes.worker.main(str(shared))
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


gradscope.cli.processes.isolation.child_of = forked_child
gradscope.cli.processes.side_by_side.child_of = forked_child
