"""Files between a command and its child process: what to run, and why it failed."""

import dataclasses
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gradscope.check.results import Failure
from gradscope.errors import GradscopeError
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

    def write(self, folder: Path) -> None:
        """Write the job into a folder, for the child."""
        (folder / "job.json").write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the job of a folder."""
        values = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        options, trial = values.pop("options"), values.pop("trial")
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
    text = json.dumps({"what": error.what, "cause": cause, "help": error.help})
    with suppress(OSError):
        failure_in(folder).write_text(text, encoding="utf-8")


def read_failure(folder: Path, seed: int | None) -> Failure | None:
    """Return the failure of a folder's job; None if there is no readable one."""
    try:
        values = json.loads(failure_in(folder).read_text(encoding="utf-8"))
        return Failure(**values, seed=seed)
    except (OSError, ValueError, TypeError):
        return None
