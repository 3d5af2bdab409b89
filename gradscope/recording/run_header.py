"""The header of a run's recording, as it is before anything is known of the training."""

import platform
from pathlib import Path

from gradscope import __version__
from gradscope.recording.meta import Header
from gradscope.recording.records import Environment, TargetRecord
from gradscope.recording.repository import repository_of


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
