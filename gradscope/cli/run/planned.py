"""How a planned run leaves the parser: what is to be run, and the file that it records into."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gradscope.cli.rank_recordings import rank_files
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.launch.program import Program
from gradscope.recording.paths import check_free, claim, remove_logs, unwritable

if TYPE_CHECKING:  # every command imports this module, before it knows whether it runs a script
    from gradscope.check.options import Policy
    from gradscope.cli.console import ColorChoice
    from gradscope.cli.output import Destination, WantedOutput
    from gradscope.launch.options import WatchOptions
    from gradscope.launch.program import Program
    from gradscope.rules.settings import Settings


_SUFFIX = ".gradscope"


class Planned:
    """A run that a command line asks for: how a program is to be run, and what is done with it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun(Planned):
    """A program to run, and what to do with its recording."""

    program: "Program"
    command: str
    """Command line as typed."""
    watch: "WatchOptions"
    location: "RecordingLocation"
    settings: "Settings"
    policy: "Policy | None"
    """None without `--check`."""
    fails_fast: bool
    output: "WantedOutput"
    report: "Destination | None"
    """Destination of the report; None uses the stream that `on_stdout` names."""
    on_stdout: bool
    rank: int | None
    """Rank in a distributed training; None for a single process."""
    is_live: bool
    is_viewed: bool
    """Whether a page is served beside the run."""
    is_quiet: bool
    color: "ColorChoice"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRun(Planned):
    """A program to run as python would, because of `GRADSCOPE=off` in the environment."""

    program: "Program"
    is_checked: bool
    """Whether the user asked for `--check`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRanks(Planned):
    """A program to run on several ranks."""

    run: PlannedRun
    """What each rank does."""
    ranks: int
    words: tuple[str, ...]
    """Command line of each rank, from `run` on."""


class RunPlanned(Exception):  # noqa: N818 - it is no error
    """Carries a planned run out of the parser, which would handle exceptions of the script."""

    def __init__(self, run: Planned) -> None:
        super().__init__("run")
        self.run = run


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
        """Return the file to create, by the files that exist now, those of its ranks included."""
        path = self.folder / f"{self.stem}{self.suffix}"
        number = 1
        while self.is_numbered and (path.exists() or rank_files(path)):
            number += 1
            path = self.folder / f"{self.stem}-{number}{self.suffix}"
        return path

    def claim(self) -> Path:
        """Create an empty file, in place of one that may be overwritten, and return its path.

        Raises:
            GradscopeError: It cannot be created, or a training writes the file that was to be
                overwritten.
        """
        while True:
            path = self.choose()
            check_free(path, force=True)
            try:
                path.unlink(missing_ok=True)
                remove_logs(path)
                is_ours = claim(path)
            except FileExistsError:
                is_ours = False
            except OSError as error:
                raise unwritable(path, str(error.strerror)) from error
            if is_ours:  # otherwise a run that started at the same time has it
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
        check_free(location.choose(), force=True)
    if not os.access(location.folder, os.W_OK):
        raise GradscopeError(
            f"cannot write the recording into {str(location.folder)!r}",
            help="name a writable path with --save RECORDING",
        )
    return location
