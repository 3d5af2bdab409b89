"""`gradscope run`: plans the run of a script. The script runs after the parser has returned."""

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

from gradscope.check.options import Policy
from gradscope.cli import options
from gradscope.cli.errors import show_note
from gradscope.cli.options import with_groups
from gradscope.cli.output import (
    check_destinations,
    set_verbosity,
    wanted_output,
)
from gradscope.cli.run.planned import (
    PlainRun,
    PlannedRanks,
    PlannedRun,
    RunPlanned,
    recording_location,
)
from gradscope.cli.running import settings_of, typed_command
from gradscope.config.formats import OutputFormatOption
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.launch.options import WatchOptions
from gradscope.launch.program import Program, check_program
from gradscope.options.declaration import Argument, Option, Parameter, declarations
from gradscope.recording.finding import Severity
from gradscope.switch import is_off

if TYPE_CHECKING:
    from gradscope.options.checks import Value


_CHECK = "Check"
_OUTPUT = "Output"
ModuleOption = Annotated[
    bool, Option("-m", help="Run SCRIPT as a module, as python -m does.", panel="Launch")
]
ScriptArgument = Annotated[
    str,
    Argument(
        metavar="SCRIPT",
        help="Script to run, or with -m a module. Put options of gradscope before it.",
        show_default=False,
    ),
]
ScriptArguments = Annotated[
    list[str] | None,
    Argument(
        metavar="ARGS",
        help="Arguments and options for the script (sys.argv).",
        show_default=False,
    ),
]
NprocOption = Annotated[
    int | None,
    Option(
        "--nproc",
        min=1,
        metavar="N",
        help="Run N ranks of SCRIPT on this machine, as torchrun --nproc-per-node N does.",
        panel="Launch",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutput:
    """Output options of a run."""

    output_format: OutputFormatOption = None
    output_file: Annotated[
        str | None,
        Option(
            "-o",
            "--output-file",
            envvar="GRADSCOPE_OUTPUT_FILE",
            metavar="PATH",
            help="Write the report to PATH; - for stdout. Default: stderr.",
            panel=_OUTPUT,
        ),
    ] = None
    open_page: options.OpenOption = False
    save: Annotated[
        Path | None,
        Option(
            metavar="RECORDING",
            help="Save the recording to this file. "
            "Default: SCRIPT.gradscope, numbered if it exists.",
            panel=_OUTPUT,
        ),
    ] = None
    live: Annotated[
        bool,
        Option(
            help="Show live progress on the terminal, below the script's own output.",
            panel=_OUTPUT,
        ),
    ] = False
    view: Annotated[
        bool,
        Option(
            help="Serve a page that shows the run while it goes on, as gradscope view does, and "
            "print its address.",
            panel=_OUTPUT,
        ),
    ] = False
    force: options.ForceOption = False
    quiet: options.QuietOption = False
    color: options.ColorOption = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCheck:
    """Options that say which findings change the exit code."""

    check: Annotated[
        bool,
        Option(
            help="Exit with code 1 if gradients are broken, or 2 if none were observed.",
            panel=_CHECK,
        ),
    ] = False
    fail_fast: Annotated[
        bool,
        Option(
            help="With --check, stop the script at the first finding that fails.",
            panel=_CHECK,
        ),
    ] = False
    fail_level: Annotated[
        Severity | None,
        declarations(Policy)["fail-level"].option.described(
            help="With --check, lowest level that fails. Default: error."
        ),
    ] = None
    max_warnings: Annotated[
        int | None,
        declarations(Policy)["max-warnings"].option.described(
            help="With --check, fail above N warnings."
        ),
    ] = None

    def policy(self, configured: Policy) -> Policy | None:
        """Return the configured policy with the options applied; None without `--check`.

        Raises:
            GradscopeError: An option needs `--check`, which is not given.
        """
        given = {
            "fail_fast": self.fail_fast or None,
            "fail_level": self.fail_level,
            "max_warnings": self.max_warnings,
        }
        names = [name for name, value in given.items() if value is not None]
        if names and not self.check:
            name = f"--{names[0].replace('_', '-')}"
            raise GradscopeError(f"{name} needs --check", help="add --check")
        if not self.check:
            return None
        return replace(
            configured,
            fail_level=self.fail_level or configured.fail_level,
            max_warnings=configured.max_warnings
            if self.max_warnings is None
            else self.max_warnings,
        )


_STDERR = ""
"""Default destination of the report."""


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
    from gradscope.config import read_configuration

    program = Program(name=script, arguments=tuple(args or ()), is_module=module)
    check_program(program)
    for option in misplaced_options(program, run):
        show_note(
            f"{option} went to {script}: options of gradscope stand before the script, "
            f"as in gradscope run {option} {script}"
        )
    # Before the configuration is read: with gradscope off, a wrong one must not stop the script.
    if is_off():
        raise RunPlanned(PlainRun(program=program, is_checked=checking.check))
    watch.check()
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
    planned = PlannedRun(
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
        is_viewed=output.view,
        is_quiet=output.quiet,
        color=output.color,
    )
    if nproc is not None:
        words = arguments_of_rank(sys.argv[1:], (script, *(args or ())))
        raise RunPlanned(PlannedRanks(run=planned, ranks=nproc, words=words))
    raise RunPlanned(planned)


def _configured(watch: WatchOptions, values: Mapping[str, "Value"]) -> WatchOptions:
    """Return how to record, with what the configuration says where no option does."""
    every, keep = values.get("sync-checks"), values.get("keep")
    if watch.sync_checks is None and isinstance(every, int):
        watch = replace(watch, sync_checks=every)
    if watch.keep is None and isinstance(keep, str):
        watch = replace(watch, keep=keep)
    batches = values.get("keep-batches")
    if watch.keep_batches is None and batches is not None:
        watch = replace(watch, keep_batches="on-trouble" if batches == "on-trouble" else "none")
    return watch


def _rank() -> int | None:
    """Return the rank of this process in a distributed training; launchers set it as `RANK`."""
    text = os.environ.get("RANK", "")
    return int(text) if text.isdecimal() else None


def arguments_of_rank(words: Sequence[str], given: Sequence[str]) -> tuple[str, ...]:
    """Return the command line of a rank: the one that was typed, without `--nproc`.

    Args:
        words: As typed, from `run` on.
        given: The script and its arguments, at the end of it.
    """
    end = len(words) - len(given)
    kept: list[str] = []
    options = iter(words[:end])
    for word in options:
        if word == "--nproc":
            next(options, None)
        elif not word.startswith("--nproc="):
            kept.append(word)
    return (*kept, *words[end:])


def misplaced_options(program: Program, command: Callable[..., None]) -> Iterator[str]:
    """Yield the script's arguments that are options of the command and unknown to the script.

    Each has its value, as `--every 2`. A script knows an option if its file contains the option's
    name, as for `argparse`.
    """
    if program.is_module:
        return
    try:
        source = Path(program.name).read_text(errors="replace")
    except OSError:
        return
    if "parse_known_args" in source:
        return
    takes_value = dict(_names(command))
    for argument, following in zip(program.arguments, (*program.arguments, "")[1:], strict=True):
        name = argument.partition("=")[0]
        plain = name.lstrip("-")
        mentioned = any(text in source for text in {name, plain, plain.replace("-", "_")})
        if name in takes_value and len(plain) > 1 and not mentioned:
            has_value = takes_value[name] and argument == name and following
            yield f"{name} {following}" if has_value else argument


def _names(command: Callable[..., None]) -> Iterator[tuple[str, bool]]:
    """Yield the name of each option, and whether a value follows it."""
    for parameter in inspect.signature(command).parameters.values():
        told = get_args(parameter.annotation)[1]
        if isinstance(told, Parameter) and not isinstance(told, Argument):
            kind = get_args(parameter.annotation)[0]
            for names in told.names or (f"--{parameter.name.replace('_', '-')}",):
                for name in names.split("/"):
                    yield name, kind is not bool
