"""Chooses the file of a run's recording."""

import os
from dataclasses import dataclass
from pathlib import Path

from gradscope.errors import GradscopeError
from gradscope.launch.program import Program

_SUFFIX = ".gradscope"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingLocation:
    """A file that is created when recording starts; its folder is absolute."""

    folder: Path
    stem: str
    suffix: str
    """Suffix of the file name, with the rank if there is one."""
    is_numbered: bool
    """Whether the name gets a number if the file exists; otherwise it is overwritten."""

    def choose(self) -> Path:
        """Return the file to create, by the files that exist now."""
        path = self.folder / f"{self.stem}{self.suffix}"
        number = 1
        while self.is_numbered and path.exists():
            number += 1
            path = self.folder / f"{self.stem}-{number}{self.suffix}"
        return path

    def clear(self) -> Path:
        """Return the file to create, after removing one that may be overwritten."""
        from gradscope.recording.writer import remove_logs

        path = self.choose()
        path.unlink(missing_ok=True)
        remove_logs(path)
        return path


def recording_location(
    program: Program, save: Path | None, *, rank: int | None, force: bool
) -> RecordingLocation:
    """Return the file of a recording: the named one, or one with the program's name here.

    Args:
        program: The program.
        save: File named by the user; None for none.
        rank: Rank in a distributed training, in which each process has a file of its own.
        force: Whether a named file may be overwritten.

    Raises:
        GradscopeError: The file cannot be written.
    """
    ending = "" if rank is None else f".rank{rank}"
    if save is None:
        location = RecordingLocation(
            folder=Path.cwd(), stem=program.stem, suffix=ending + _SUFFIX, is_numbered=True
        )
    else:
        location = RecordingLocation(
            folder=save.resolve().parent,
            stem=save.stem,
            suffix=ending + save.suffix,
            is_numbered=False,
        )
        if location.choose().exists() and not force:
            raise GradscopeError(
                f"'{save.with_name(location.choose().name)}' already exists",
                help="add --force to overwrite it, or name another file",
            )
    if not os.access(location.folder, os.W_OK):
        raise GradscopeError(
            f"cannot write the recording into {str(location.folder)!r}",
            help="name a writable path with --save RECORDING",
        )
    return location
