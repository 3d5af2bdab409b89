"""Runs a target in a process of its own, which may crash or hang."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from traceback import extract_tb
from types import FrameType
from typing import BinaryIO, Self

from gradscope.check.results import Failure
from gradscope.cli.errors import show_error, show_note
from gradscope.cli.progress import erase_progress
from gradscope.errors import ExitCode, GradscopeError, GuessNeededError
from gradscope.frozen import dataclass
from gradscope.recording.records import Recording, is_installed
from gradscope.recording.rows_in_file import in_memory
from gradscope.recording.store import load_recording
from gradscope.target.options import TargetOptions, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run of a target with one seed, in a folder that parent and child share."""

    name: str
    """Name of the target as the user knows it."""
    spec: str
    options: TargetOptions
    trial: Trial
    command: str
    """Command line as typed, for the record."""
    level: int
    """Verbosity of messages on stderr."""
    progress: str | None = ""
    """Text before each stage on the terminal; None for a run that shows none."""
    is_silent: bool = False
    """Whether nothing that it prints is shown, not even errors."""
    is_reported: bool = False
    """Whether a report states why it failed; stderr then gets no more than the traceback."""
    overlay: Mapping[str, str] = field(default_factory=dict)
    """Edited texts of files, by absolute path, to import instead of what is on disk."""

    def write(self, folder: Path) -> None:
        """Write the job into a folder, for the child."""
        (folder / "job.json").write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the job of a folder."""
        values = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        options, trial = values.pop("options"), values.pop("trial")
        # JSON has no tuples.
        for name in ("inputs", "args"):
            options[name] = tuple(options[name])
        return cls(options=TargetOptions(**options), trial=Trial(**trial), **values)


def recording_in(folder: Path) -> Path:
    """Return the file to which the child writes its recording."""
    return folder / "run.gradscope"


def stacks_in(folder: Path) -> Path:
    """Return the file to which the child writes its stack on request."""
    return folder / "stacks.txt"


def failure_in(folder: Path) -> Path:
    """Return the file to which the child writes its failure."""
    return folder / "failure.json"


def write_failure(folder: Path, error: GradscopeError) -> None:
    """Write the failure of a job into a folder, unless the disk is full."""
    raised = error.__cause__
    cause = error.cause
    if cause is None and raised is not None and not isinstance(raised, GradscopeError):
        told = f"{type(raised).__name__}: {raised}".partition("\n")[0]
        cause = None if told in error.what else told
    file, line = _raised_at(error)
    values = {
        "what": error.what,
        "cause": cause,
        "help": error.help,
        "needs_guess": isinstance(error, GuessNeededError),
        "file": file,
        "line": line,
    }
    text = json.dumps(values)
    with suppress(OSError):
        failure_in(folder).write_text(text, encoding="utf-8")


def read_failure(folder: Path, seed: int | None) -> Failure | None:
    """Return the failure of a folder's job; None if there is no readable one."""
    try:
        values = json.loads(failure_in(folder).read_text(encoding="utf-8"))
        return Failure(**values, seed=seed)
    except (OSError, ValueError, TypeError):
        # A child that is killed may leave half a file.
        return None


_OWN_FOLDER = str(Path(__file__).resolve().parents[2])

_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)')

_ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Signals with which a user, a CI system or a closed terminal ends a command."""

_GRACE = 1.0
"""Seconds that a process has to report its current line before it is ended."""


def run_apart(
    job: Job, folder: Path, timeout: float | None, threads: int | None = None
) -> Recording | Failure:
    """Run a job in a child process; return its recording, or the reason why there is none.

    The child's output goes to stderr, and so do its errors.

    Args:
        job: The run.
        folder: The working directory in which it runs.
        timeout: Seconds until the process is ended; None for no limit.
        threads: Number of torch's threads, unless the environment sets it.
    """
    erase_progress()
    # Signals become exceptions first: then the child is ended and the folder removed.
    with (
        leaving_when_ended(),
        ExitStack() as stack,
        TemporaryDirectory(prefix="gradscope-") as shared,
    ):
        position = Path(shared)
        job.write(position)
        output = stack.enter_context(Path(os.devnull).open("wb")) if job.is_silent else None
        # Without a timeout, the child stays in the terminal's group, where Ctrl-C reaches it.
        is_apart = timeout is not None
        with child_of(position, folder, is_apart=is_apart, threads=threads, output=output) as child:
            try:
                code = child.wait(timeout)
            except subprocess.TimeoutExpired:
                # A process that does not end may have written its recording before.
                if not recording_in(position).exists():
                    return printed(job, too_slow(job, position, child, timeout or 0.0))
                code = None
        return outcome_of(job, position, code)


def outcome_of(job: Job, shared: Path, code: int | None) -> Recording | Failure:
    """Return the recording of a child, or its failure; `code` is None if it had to be ended."""
    recording = recording_in(shared)
    if recording.exists():
        if code != ExitCode.OK and not job.is_silent:
            how = "did not exit" if code is None else _ending(code)
            show_note(f"{job.name} {how} after its gradients were recorded; they are checked")
        try:
            seen = load_recording(recording)
            return replace(seen, stored_gradients=in_memory(seen.stored_gradients))
        except GradscopeError as error:
            failure = Failure(what=error.what, cause=error.cause, seed=job.options.seed)
            return printed(job, failure)
    return read_failure(shared, job.options.seed) or printed(job, _crash(job, shared, code or 0))


@contextmanager
def child_of(
    shared: Path,
    folder: Path,
    *,
    is_apart: bool,
    threads: int | None = None,
    output: BinaryIO | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the child; at the end of the block, end it and its own children.

    Args:
        shared: The folder of the job.
        folder: The child's working directory.
        is_apart: Whether it gets a process group of its own, which can be ended as a whole.
        threads: Number of torch's threads, unless the environment sets it.
        output: File that gets what it prints; None for stderr.
    """
    # The child imports the same modules; the working directory must not shadow them.
    start = (
        f"import sys; sys.path[:] = {sys.path!r}; "
        f"from gradscope.cli.processes.worker import main; main({str(shared)!r})"
    )
    # Flags such as -W and -X hold for the child too: multiprocessing passes them on like this.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    # A fixed seed gives sets of strings the same order in every run.
    shares = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    environment = {"PYTHONHASHSEED": "0", **shares, **os.environ}
    try:
        child = subprocess.Popen(
            [sys.executable, *flags, "-P", "-c", start],
            cwd=folder,
            env=environment,
            # stdout holds nothing but the report, and only the original stream has a descriptor.
            stdout=sys.__stderr__ if output is None else output,
            stderr=output,
            start_new_session=is_apart,
        )
    except OSError as error:
        raise GradscopeError(f"cannot run in {str(folder)!r}", cause=error.strerror) from None
    try:
        yield child
    finally:
        _end(child, is_apart=is_apart)


@contextmanager
def leaving_when_ended() -> Iterator[None]:
    """Raise an exception when the command is ended, to end its child and remove its files."""
    before = {number: signal.getsignal(number) for number in _ENDING}

    def leave(number: int, frame: FrameType | None) -> None:
        for one in _ENDING:  # `timeout` sends a second one, which must not interrupt the clean-up
            signal.signal(one, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # `nohup` ignores SIGHUP, and so does the command
            signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is leave:
                signal.signal(number, handler)


def _end(child: subprocess.Popen[bytes], *, is_apart: bool) -> None:
    if is_apart and os.name == "posix":
        # The group is gone if its processes have all ended.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    elif child.poll() is None:
        child.kill()
    # A process that nobody waits for stays in the system's table.
    child.wait()


def printed(job: Job, failure: Failure) -> Failure:
    """Print a failure that the child of a job could not print itself, and return it."""
    if not (job.is_silent or job.is_reported):
        show_error(GradscopeError(failure.what, cause=failure.cause, help=failure.help))
    return failure


def too_slow(job: Job, shared: Path, child: subprocess.Popen[bytes], seconds: float) -> Failure:
    """Return the failure of a run that took too long, with its current line."""
    line = _line_of(child, shared)
    return Failure(
        what=f"{job.name} took longer than {seconds:g} s",
        cause=None if line is None else f"it was at {line}",
        help="raise --timeout, or use a smaller batch",
        seed=job.options.seed,
    )


def _line_of(child: subprocess.Popen[bytes], shared: Path) -> str | None:
    """Return the line of user code that a child executes; None if it does not answer."""
    stacks = stacks_in(shared)
    # Until the child has opened the file, nothing handles the signal, which would end it.
    if not (stacks.exists() and hasattr(signal, "SIGUSR1")):
        return None
    child.send_signal(signal.SIGUSR1)
    end = time.monotonic() + _GRACE
    while not stacks.stat().st_size and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.05)  # until all of it is written
    frames = list(_FRAME.finditer(stacks.read_text(errors="replace")))
    mine = [frame for frame in frames if _is_users(frame["file"])]
    if not mine:
        return None
    return f"{mine[0]['file']}:{mine[0]['line']} in {mine[0]['function']}"


def _is_users(file: str) -> bool:
    installed = (_OWN_FOLDER, f"{sys.base_prefix}{os.sep}lib", f"{sys.prefix}{os.sep}lib")
    return not file.startswith((*installed, "<"))


def _raised_at(error: BaseException) -> tuple[str | None, int | None]:
    """Return file and line of the user's code that raised, in the innermost cause that has one."""
    found: tuple[str | None, int | None] = (None, None)
    raised: BaseException | None = error
    while raised is not None:
        for frame in extract_tb(raised.__traceback__):
            if _is_users(frame.filename) and not is_installed(frame.filename):
                found = (frame.filename, frame.lineno)
        raised = raised.__cause__
    return found


def _crash(job: Job, shared: Path, code: int) -> Failure:
    """Return the failure of a run that ended without a message."""
    cause = help_ = None
    if not shared.is_dir():
        cause = f"the code removed the temporary folder {str(shared)!r}"
    elif failure_in(shared).exists():
        cause = f"the error on stderr could not be written to {str(shared)!r}"
        help_ = "free some disk space, or set TMPDIR to another folder"
    elif code == ExitCode.INTERRUPTED:
        cause = "the code raised KeyboardInterrupt, or sent itself SIGINT"
    elif code >= 0:
        cause = "the code, or a library, called os._exit"
    elif code == -signal.SIGKILL:
        help_ = "check that there is enough memory"
    return Failure(
        what=f"{job.name} {_ending(code)}", cause=cause, help=help_, seed=job.options.seed
    )


def _ending(code: int) -> str:
    """Return how a process with this exit code ended."""
    if code >= 0:
        return f"ended its process with exit code {code}"
    known = {number.value: number.name for number in signal.Signals}
    return f"was killed by {known.get(-code, f'signal {-code}')}"
