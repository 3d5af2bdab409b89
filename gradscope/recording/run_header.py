"""The header of a run's recording, how the run ended, and which of its events are steps."""

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from gradscope import __version__
from gradscope.recording.meta import Header
from gradscope.recording.records import Environment, Recording, TargetRecord

# In a worktree or a submodule `.git` is a file.
_MARKS = (".git", "pyproject.toml")


def repository_of(folder: Path) -> Path:
    """Return the nearest folder upward that has `.git`, else `pyproject.toml`, else the folder."""
    upward = (folder, *folder.parents)
    return next((one for mark in _MARKS for one in upward if (one / mark).exists()), folder)


EndingKind = Literal["returned", "exited", "raised", "interrupted", "stopped", "limited", "lost"]
"""`returned`: at the script's last line; `exited`: by `sys.exit`; `raised`: by an exception that
nothing caught; `interrupted`: by Ctrl-C; `stopped`: as an option of gradscope asked for. The script
went on after these: `limited`: as much was recorded as an option asked for; `lost`: gradscope could
not follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnding:
    """Why nothing more was recorded; a killed process leaves no such record."""

    table: ClassVar[str] = "run_ending"
    kind: EndingKind
    code: int | None = None
    """The script's exit code."""
    exception: str = ""
    """The class of the exception."""
    message: str = ""
    """The first line of what the exception says, or the option or the reason."""
    file: str = ""
    """Where it was raised, in code that is not installed if there is such; empty if not known."""
    line: int | None = None


_OF_GRADIENTS = frozenset({"backward", "backward-error", "grad", "grad-error", "step"})


def says_nothing(recording: Recording) -> bool:
    """Return whether the recording of a run says nothing about gradients.

    A script that starts others which train may still make an optimizer, or zero gradients.
    """
    kinds = {event.kind for event in recording.events}
    return not recording.captured_steps and kinds.isdisjoint(_OF_GRADIENTS)


def run_header(command: str, name: str, *, torch: str, threads: int) -> Header:
    """Return the header of a run that begins in the working directory.

    Args:
        command: As it was typed.
        name: Of what is run.
        torch: Its version.
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
