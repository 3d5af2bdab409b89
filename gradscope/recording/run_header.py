"""The header of a run's recording, the end of the run, and the events that are steps."""

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from gradscope import __version__
from gradscope.recording.meta import Header
from gradscope.recording.records import Environment, Recording, TargetRecord

# In a worktree or a submodule, `.git` is a file.
_MARKS = (".git", "pyproject.toml")


def repository_of(folder: Path) -> Path:
    """Return the nearest parent with `.git`, else with `pyproject.toml`, else the folder."""
    upward = (folder, *folder.parents)
    return next((one for mark in _MARKS for one in upward if (one / mark).exists()), folder)


EndingKind = Literal["returned", "exited", "raised", "interrupted", "stopped", "limited", "lost"]
"""`returned`: at the script's last line; `exited`: by `sys.exit`; `raised`: by an uncaught
exception; `interrupted`: by Ctrl-C; `stopped`: requested by an option of gradscope. The script
continued after these: `limited`: the requested number of steps was recorded; `lost`: gradscope
could not follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnding:
    """Why recording ended; a killed process leaves no such record."""

    table: ClassVar[str] = "run_ending"
    kind: EndingKind
    code: int | None = None
    """Exit code of the script."""
    exception: str = ""
    """Class of the exception."""
    message: str = ""
    """First line of the exception's message, or the option or the reason."""
    file: str = ""
    """File where it was raised, preferably not installed code; empty if unknown."""
    line: int | None = None


_OF_GRADIENTS = frozenset({"backward", "backward-error", "grad", "grad-error", "step"})


def says_nothing(recording: Recording) -> bool:
    """Return whether the recording of a run contains nothing about gradients.

    A script that starts training processes may itself only make an optimizer, or zero gradients.
    """
    kinds = {event.kind for event in recording.events}
    return not recording.captured_steps and kinds.isdisjoint(_OF_GRADIENTS)


def run_header(command: str, name: str, *, torch: str, threads: int) -> Header:
    """Return the header of a run that starts in the working directory.

    Args:
        command: The command as typed.
        name: Name of the program.
        torch: Version of torch.
        threads: Number of threads that torch computes with.
    """
    folder = Path.cwd()
    return Header(
        version=__version__,
        command=command,
        environment=Environment(
            python=platform.python_version(),
            torch=torch,
            platform=f"{platform.system()} {platform.machine()}",
            device="cpu",
            threads=threads,
        ),
        target=TargetRecord(
            name=name,
            model="",
            batch="",
            loss="",
            optimizer=None,
            mode="train",
            seed=None,
            synthetic_loss=False,
            root=str(folder),
            repository=str(repository_of(folder)),
        ),
    )
