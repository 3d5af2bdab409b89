"""`gradscope run`: what is to be run, and how. It runs after the parser has been left."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gradscope.check.options import Policy
from gradscope.cli import options
from gradscope.cli.console import ColorChoice
from gradscope.cli.option_groups import with_groups
from gradscope.cli.output import Destination, check_destinations, set_verbosity
from gradscope.cli.rank_launching import PlannedRanks, words_of_rank
from gradscope.cli.rules import settings_of
from gradscope.cli.run_options import (
    LiveOption,
    ModuleOption,
    NprocOption,
    RunFileOption,
    RunGateGroup,
    SaveRunOption,
    ScriptArgument,
    ScriptArguments,
    WatchGroup,
)
from gradscope.cli.running import typed_command
from gradscope.cli.wanted_output import WantedOutput, wanted_output
from gradscope.launch.program import Program, check_program
from gradscope.switch import is_off

if TYPE_CHECKING:
    from gradscope.cli.run_recording import RecordingLocation
    from gradscope.rules.settings import Settings


_STDERR = ""
"""Default destination of the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A program to run, and what to do with what is seen of it."""

    program: Program
    command: str
    """Command line as typed."""
    watch: WatchGroup
    location: "RecordingLocation"
    settings: "Settings"
    policy: Policy | None
    """None where nothing is gated."""
    fails_fast: bool
    output: WantedOutput
    report: Destination | None
    """Destination of the report; None uses the stream that `on_stdout` names."""
    on_stdout: bool
    rank: int | None
    """Rank in a distributed training; None for a single process."""
    is_live: bool
    is_quiet: bool
    color: ColorChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRun:
    """A program to run as python would: the environment says `GRADSCOPE=off`."""

    program: Program
    is_gated: bool
    """Whether it was to be checked."""


class RunPlanned(Exception):  # noqa: N818 - it is no error
    """Carries a planned run out of the parser, which would swallow what the script may raise."""

    def __init__(self, run: PlannedRun | PlainRun | PlannedRanks) -> None:
        super().__init__("run")
        self.run = run


@with_groups
def run(  # noqa: PLR0913 - the signature is the list of options
    script: ScriptArgument,
    watch: WatchGroup,
    gate: RunGateGroup,
    rules: options.RulesGroup,
    args: ScriptArguments = None,
    module: ModuleOption = False,
    nproc: NprocOption = None,
    output_format: options.OutputFormatOption = None,
    output_file: RunFileOption = None,
    open_page: options.OpenOption = False,
    save: SaveRunOption = None,
    live: LiveOption = False,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    color: options.ColorOption = "auto",
) -> None:
    """Run an unchanged training script, record every step, and report on stderr.

    Exit code: the script's. With --check, 1 for findings and 2 if no gradient was observed.
    """
    set_verbosity(quiet=quiet, verbose=False)
    from gradscope.cli.run_recording import recording_location
    from gradscope.config import read_configuration

    program = Program(name=script, arguments=tuple(args or ()), is_module=module)
    check_program(program)
    if is_off():
        raise RunPlanned(PlainRun(program=program, is_gated=gate.check))
    watch.check()
    if nproc is not None:
        given = (script, *(args or ()))
        words = words_of_rank(sys.argv[1:], given)
        raise RunPlanned(PlannedRanks(ranks=nproc, words=words))
    configuration = read_configuration(rules.config)
    rank = _rank()
    # Nothing that is written may take the place of the script.
    inputs = () if module else (Path(script),)
    wanted = wanted_output(
        output_format,
        output_file or _STDERR,
        is_opened=open_page,
        subject=script,
        default=configuration.output_format,
        streams=("-", _STDERR),
    )
    file = "-" if wanted.file == _STDERR else wanted.file
    written = check_destinations(file, save, force=force, inputs=inputs)
    raise RunPlanned(
        PlannedRun(
            program=program,
            command=typed_command(),
            watch=watch,
            location=recording_location(program, save, rank=rank, force=force),
            settings=settings_of(rules, configuration.settings),
            policy=gate.policy(configuration.policy),
            fails_fast=gate.fail_fast,
            output=wanted,
            report=written.report,
            on_stdout=wanted.file == "-",
            rank=rank,
            is_live=live,
            is_quiet=quiet,
            color=color,
        )
    )


def _rank() -> int | None:
    """Return the process's place in a distributed training, as torchrun and its like say it."""
    text = os.environ.get("RANK", "")
    return int(text) if text.isdecimal() else None
