"""How a planned run leaves the parser: what is to be run, and what is done with its recording."""

from typing import TYPE_CHECKING

from gradscope.frozen import dataclass

if TYPE_CHECKING:  # every command imports this module, before it knows whether it runs a script
    from gradscope.check.options import Policy
    from gradscope.cli.console import ColorChoice
    from gradscope.cli.output import Destination, WantedOutput
    from gradscope.cli.run.recording_location import RecordingLocation
    from gradscope.launch.options import WatchOptions
    from gradscope.launch.program import Program
    from gradscope.rules.settings import Settings


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
