"""Runs targets in processes of their own, several at a time."""

import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, chdir
from dataclasses import field, replace
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory

from gradscope.check.results import Failure
from gradscope.cli.processes.isolation import (
    Job,
    child_of,
    leaving_when_ended,
    outcome_of,
    printed,
    recording_in,
    run_apart,
    too_slow,
)
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.progress import tell_stage
from gradscope.recording.records import Recording
from gradscope.target.discovery.importing import find_file
from gradscope.target.discovery.source_check import check_source
from gradscope.target.notation import parse_target

_PAUSE = 0.02
"""Seconds between two checks of the processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A job, where it runs, and for how long."""

    job: Job
    folder: Path
    timeout: float | None
    edit: int | None = None
    """Number of the edit that is tried; None for a target as it is."""

    @property
    def title(self) -> str:
        """Name of the target, and its edit or seed."""
        if self.edit is not None:
            return f"{self.job.name} with edit {self.edit}"
        seed = self.job.options.seed
        return self.job.name if seed is None else f"{self.job.name}, seed {seed}"


def run_all(planned: Sequence[PlannedJob], limit: int) -> list[Recording | Failure]:
    """Run jobs, and return their recordings or failures in the order given.

    What they print goes to stderr in this order, too. The number of torch's threads depends on the
    number of jobs alone, so that `limit` changes no number.

    Args:
        planned: The jobs.
        limit: Number of processes at a time.
    """
    threads = max(cores() // len(planned), 1) if len(planned) > 1 else None
    refused = [_refusal(one) for one in planned]
    good = [one for one, failure in zip(planned, refused, strict=True) if failure is None]
    if min(limit, len(good)) > 1:
        seen = iter(_side_by_side(good, limit, threads))
    else:
        seen = iter(_one_by_one(good, threads))
    return [next(seen) if failure is None else failure for failure in refused]


def _refusal(planned: PlannedJob) -> Failure | None:
    """Return the failure of a target whose file already shows that it does not load."""
    job = planned.job
    if job.overlay:
        return None
    try:
        with chdir(planned.folder):
            spec = parse_target(job.spec)
            if find_file(spec.location) is not None:
                check_source(spec)
    except GradscopeError as error:
        seed = job.options.seed
        failure = Failure(what=error.what, cause=error.cause, help=error.help, seed=seed)
        return printed(job, failure)
    return None


def _one_by_one(
    planned: Sequence[PlannedJob], threads: int | None
) -> Iterator[Recording | Failure]:
    for number, one in enumerate(planned, start=1):
        prefix = f"{one.title} ({number} of {len(planned)}): " if len(planned) > 1 else ""
        job = replace(one.job, progress=prefix)
        yield run_apart(job, one.folder, one.timeout, threads)


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    # A container or a scheduler may allow fewer cores than the machine has.
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(slots=True, kw_only=True)
class _Running:
    """A job whose process was started."""

    planned: PlannedJob
    shared: Path
    child: Popen[bytes]
    resources: ExitStack
    """Ends the process when it is closed."""
    folder: TemporaryDirectory[str]
    started: float = field(default_factory=time.monotonic)
    is_over: bool = False
    code: int | None = None
    """Exit code of the process; None if it had to be ended."""
    failure: Failure | None = None
    """Failure of a process that took too long."""

    @classmethod
    def begin(cls, planned: PlannedJob, threads: int | None) -> "_Running":
        folder, resources = TemporaryDirectory(prefix="gradscope-"), ExitStack()
        shared = Path(folder.name)
        # Progress lines of several processes would overwrite each other.
        replace(planned.job, progress=None).write(shared)
        output = resources.enter_context(_output_in(shared).open("wb"))
        child = child_of(
            shared,
            planned.folder,
            is_apart=planned.timeout is not None,
            threads=threads,
            output=output,
        )
        return cls(
            planned=planned,
            shared=shared,
            child=resources.enter_context(child),
            resources=resources,
            folder=folder,
        )

    def poll(self) -> None:
        """See whether the process is over, and end one that takes too long."""
        if self.is_over:
            return
        self.code = self.child.poll()
        limit = self.planned.timeout
        is_late = limit is not None and time.monotonic() - self.started > limit
        if self.code is None and not is_late:
            return
        # A process that does not end may have written its recording before.
        if self.code is None and not recording_in(self.shared).exists():
            self.failure = too_slow(self.planned.job, self.shared, self.child, limit or 0.0)
        self.is_over = True
        self.resources.close()

    def result(self) -> Recording | Failure:
        """Print what the process printed, and return its recording or failure."""
        output = _output_in(self.shared)
        if output.exists() and not self.planned.job.is_silent:
            sys.stderr.write(output.read_text(encoding="utf-8", errors="replace"))
            sys.stderr.flush()
        if self.failure is not None:
            return printed(self.planned.job, self.failure)
        return outcome_of(self.planned.job, self.shared, self.code)

    def close(self) -> None:
        self.resources.close()
        self.folder.cleanup()


def _side_by_side(
    planned: Sequence[PlannedJob], limit: int, threads: int | None
) -> list[Recording | Failure]:
    waiting, running = deque(planned), deque[_Running]()
    found: list[Recording | Failure] = []
    told = ""
    with leaving_when_ended(), ExitStack() as stack:
        while waiting or running:
            while waiting and sum(not one.is_over for one in running) < limit:
                running.append(_Running.begin(waiting.popleft(), threads))
                stack.callback(running[-1].close)
            told = _told_anew(told, running, len(found), len(planned))
            time.sleep(_PAUSE)
            for one in running:
                one.poll()
            while running and running[0].is_over:
                found.append(running[0].result())
                running.popleft().close()
    return found


def _told_anew(told: str, running: Sequence[_Running], found: int, total: int) -> str:
    """Say which jobs run, if that is not what was told before; return what was told."""
    done = found + sum(one.is_over for one in running)
    names = "; ".join(one.planned.title for one in running if not one.is_over)
    text = f"checking {done + 1} of {total}: {names}"
    if text != told and names:
        tell_stage(text)
    return text


def _output_in(shared: Path) -> Path:
    """Return the file that gets what the process of a job prints."""
    return shared / "output.txt"
