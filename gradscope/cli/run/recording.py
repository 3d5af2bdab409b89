"""Where the recording of a run is kept."""

import os
from dataclasses import dataclass
from pathlib import Path

from gradscope.errors import GradscopeError
from gradscope.launch.program import Program

_SUFFIX = ".gradscope"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingLocation:
    """A file that is made when there is something to record; its folder is absolute."""

    folder: Path
    stem: str
    suffix: str
    """Suffix of the file name, with the rank if there is one."""
    is_numbered: bool
    """Whether a number is added where such a file exists, rather than writing over it."""

    def choose(self) -> Path:
        """Return the file to make, as things are now."""
        path = self.folder / f"{self.stem}{self.suffix}"
        number = 1
        while self.is_numbered and path.exists():
            number += 1
            path = self.folder / f"{self.stem}-{number}{self.suffix}"
        return path

    def clear(self) -> Path:
        """Return the file to make, after removing the one that may be written over."""
        from gradscope.recording.writer import remove_logs

        path = self.choose()
        path.unlink(missing_ok=True)
        remove_logs(path)
        return path


def recording_location(
    program: Program, save: Path | None, *, rank: int | None, force: bool
) -> RecordingLocation:
    """Return where to keep a recording: the file that is named, or one of the program's name here.

    Args:
        program: What is run.
        save: As named by the user.
        rank: Each process of a distributed training has a file of its own.
        force: Whether a file that is named may be written over.

    Raises:
        GradscopeError: It cannot be written.
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
