"""`gradscope run`: plans the run of a script. The script runs after the parser has returned."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gradscope.check.options import Policy
from gradscope.cli import options
from gradscope.cli.console import ColorChoice
from gradscope.cli.errors import show_note
from gradscope.cli.option_groups import with_groups
from gradscope.cli.output import Destination, check_destinations, set_verbosity
from gradscope.cli.run.misplaced_options import misplaced_options
from gradscope.cli.run.options import (
    ModuleOption,
    NprocOption,
    RunCheck,
    RunOutput,
    ScriptArgument,
    ScriptArguments,
)
from gradscope.cli.run.rank_launching import PlannedRanks, words_of_rank
from gradscope.cli.running import settings_of, typed_command
from gradscope.cli.wanted_output import WantedOutput, wanted_output
from gradscope.launch.options import WatchOptions
from gradscope.launch.program import Program, check_program
from gradscope.switch import is_off

if TYPE_CHECKING:
    from gradscope.cli.run.recording import RecordingLocation
    from gradscope.options.checks import Value
    from gradscope.rules.settings import Settings


_STDERR = ""
"""Default destination of the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A program to run, and what to do with its recording."""

    program: Program
    command: str
    """Command line as typed."""
    watch: WatchOptions
    location: "RecordingLocation"
    settings: "Settings"
    policy: Policy | None
    """None without `--check`."""
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
    """A program to run as python would, because of `GRADSCOPE=off` in the environment."""

    program: Program
    is_checked: bool
    """Whether the user asked for `--check`."""


class RunPlanned(Exception):  # noqa: N818 - it is no error
    """Carries a planned run out of the parser, which would handle exceptions of the script."""

    def __init__(self, run: PlannedRun | PlainRun | PlannedRanks) -> None:
        super().__init__("run")
        self.run = run


@with_groups
def run(
    *,
    script: ScriptArgument,
    args: ScriptArguments = None,
    watch: WatchOptions,
    checking: RunCheck,
    rules: options.RuleOptions,
    module: ModuleOption = False,
    nproc: NprocOption = None,
    output: RunOutput,
) -> None:
    """Run an unchanged training script, record every step, and report on stderr.

    Exit code: the script's. With --check, 1 for findings and 2 if no gradient was observed.
    """
    set_verbosity(quiet=output.quiet, verbose=False)
    from gradscope.cli.run.recording import recording_location
    from gradscope.config import read_configuration

    program = Program(name=script, arguments=tuple(args or ()), is_module=module)
    check_program(program)
    for option in misplaced_options(program, run):
        show_note(
            f"{option} went to {script}: options of gradscope stand before the script, "
            f"as in gradscope run {option} {script}"
        )
    if is_off():
        raise RunPlanned(PlainRun(program=program, is_checked=checking.check))
    watch.check()
    if nproc is not None:
        words = words_of_rank(sys.argv[1:], (script, *(args or ())))
        raise RunPlanned(PlannedRanks(ranks=nproc, words=words))
    configuration = read_configuration(options.ConfigurationFile.of(rules))
    rank = _rank()
    # No output may overwrite the script.
    inputs = () if module else (Path(script),)
    wanted = wanted_output(
        output.output_format,
        output.output_file or _STDERR,
        is_opened=output.open_page,
        subject=script,
        default=configuration.output_format,
        streams=("-", _STDERR),
    )
    file = "-" if wanted.file == _STDERR else wanted.file
    written = check_destinations(file, output.save, force=output.force, inputs=inputs)
    raise RunPlanned(
        PlannedRun(
            program=program,
            command=typed_command(),
            watch=_configured(watch, configuration.values),
            location=recording_location(program, output.save, rank=rank, force=output.force),
            settings=settings_of(rules, configuration.settings),
            policy=checking.policy(configuration.policy),
            fails_fast=checking.fail_fast,
            output=wanted,
            report=written.report,
            on_stdout=wanted.file == "-",
            rank=rank,
            is_live=output.live,
            is_quiet=output.quiet,
            color=output.color,
        )
    )


def _configured(watch: WatchOptions, values: Mapping[str, "Value"]) -> WatchOptions:
    """Return how to record, with what the configuration says where no option does."""
    every = values.get("sync-checks")
    if watch.sync_checks is not None or not isinstance(every, int):
        return watch
    return replace(watch, sync_checks=every)


def _rank() -> int | None:
    """Return the rank of this process in a distributed training; launchers set it as `RANK`."""
    text = os.environ.get("RANK", "")
    return int(text) if text.isdecimal() else None
