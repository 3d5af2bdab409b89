"""The header of a run's recording, how the run ended, and which of its events are steps."""

import platform
from pathlib import Path

from gradscope import __version__
from gradscope.recording.meta import Header
from gradscope.recording.records import Environment, Recording, TargetRecord

# In a worktree or a submodule `.git` is a file.
_MARKS = (".git", "pyproject.toml")


def repository_of(folder: Path) -> Path:
    """Return the nearest folder upward that has `.git`, else `pyproject.toml`, else the folder."""
    upward = (folder, *folder.parents)
    return next((one for mark in _MARKS for one in upward if (one / mark).exists()), folder)


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
