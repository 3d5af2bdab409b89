"""`gradscope compare`."""

import gc
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradscope.cli import options
from gradscope.cli.compared_sides import PlannedSide, planned_sides
from gradscope.cli.console import make_console
from gradscope.cli.errors import show_error, show_note
from gradscope.cli.option_groups import with_groups
from gradscope.cli.options import given_arguments, split_arguments
from gradscope.cli.output import (
    check_destinations,
    files_of_target,
    set_verbosity,
    write_text,
)
from gradscope.cli.running import judged_job, settings_of, typed_command
from gradscope.cli.wanted_output import wanted_output
from gradscope.comparison.tolerance import Tolerance
from gradscope.errors import ExitCode, GradscopeError
from gradscope.options.declaration import Argument, Option
from gradscope.report.comparison import DEFAULT_TOP

if TYPE_CHECKING:
    from gradscope.comparison.comparison import Comparison


CompareArguments = Annotated[
    list[str] | None,
    Argument(
        metavar="TARGET|RECORDING...",
        help="Two or more of: .gradscope files, path/file.py[:EXPR] or package.module[:EXPR]. Each "
        "is compared with the first. The ranks of a job are one: their folder, their common name, "
        "or their files beside others. Arguments after -- go to the targets' files (sys.argv).",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionOptions:
    """Options that say what a regression does."""

    fail_on_regression: Annotated[
        bool,
        Option(
            help="Exit with code 1 if a recording is worse than the first.", panel="Regressions"
        ),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonScope:
    """Options that say what is compared, and how much of it is listed."""

    vary: Annotated[
        str | None,
        Option(
            metavar="OPTION=V,V",
            help="Run each target with several values of an option and compare the runs, such as "
            "seed=0,1 or dtype=float32,bfloat16.",
            panel="What to compare",
            show_default=False,
        ),
    ] = None
    step: Annotated[
        int | None,
        Option(
            min=0,
            metavar="N",
            help="Compare this step of training runs. Default: all steps in common.",
            panel="What to compare",
            show_default=False,
        ),
    ] = None
    top: Annotated[
        int, Option(min=1, metavar="N", help="List N parameters, worst first.", panel="Report")
    ] = DEFAULT_TOP


@with_groups
def compare(
    *,
    sides: CompareArguments = None,
    regressions: RegressionOptions,
    tolerance: Tolerance,
    trial: options.TrialOptions,
    rules: options.RuleOptions,
    scope: ComparisonScope,
    output: options.ComparisonOutput,
) -> None:
    """Compare gradients: before and after a change, or between dtypes, seeds, ranks or runs.

    Exit code: 0, or with --fail-on-regression 1 if one is worse than the first; 2 if nothing can be
    compared.
    """
    set_verbosity(quiet=output.quiet, verbose=output.verbose)
    from gradscope.comparison.comparison import compare as compared
    from gradscope.config import read_configuration
    from gradscope.report.comparison.phrasing import verdict_text
    from gradscope.report.render import render_comparison

    given, args = split_arguments(sides or [], sys.argv)
    configuration = read_configuration(options.ConfigurationFile.of(rules))
    settings = settings_of(rules, configuration.settings)
    overrides = {**trial, **given_arguments(args)}
    planned = planned_sides(given, scope.vary, configuration, overrides)
    wanted = wanted_output(
        output.output_format, output.output_file, is_opened=output.open_page, subject="comparison"
    )
    destination = check_destinations(
        wanted.file, None, force=False, inputs=tuple(_files_read(planned))
    ).report
    reports = [(side.name, judged_job(side.recordings(), settings)) for side in planned]
    gc.freeze()  # long runs are millions of records, which garbage collections would visit
    comparison = compared(
        reports,
        tolerance,
        command=typed_command(),
        step=scope.step,
        is_check=regressions.fail_on_regression,
    )
    console = make_console(sys.stdout if destination is None else io.StringIO(), output.color)
    text = render_comparison(comparison, wanted.form, console, top=scope.top, is_brief=output.quiet)
    write_text(text, destination, sys.stdout, outcome=verdict_text(comparison))
    if destination is not None:
        _tell_regressions(comparison)
    wanted.open(destination)
    raise typer.Exit(_exit_code(comparison))


def _files_read(planned: Sequence[PlannedSide]) -> Iterator[Path]:
    """Yield the files that the comparison may read; no report may overwrite them."""
    for side in planned:
        if isinstance(side.source, tuple):
            yield from side.source
        else:
            yield from files_of_target(side.source)


def _tell_regressions(comparison: "Comparison") -> None:
    """Print the regressions on stderr, for the log of a job."""
    from gradscope.report.comparison.phrasing import regression_text

    for one in comparison.verdict.regressions if comparison.is_check else ():
        letter = comparison.sides[one.side].letter
        show_note(f"{letter}: {regression_text(one, comparison)}")


def _exit_code(comparison: "Comparison") -> ExitCode:
    """Return the exit code; print the reason if nothing can be compared."""
    verdict = comparison.verdict
    if verdict.outcome == "unjudged":
        show_error(
            GradscopeError(
                f"nothing to compare: {verdict.skip_reasons[0]}",
                help="gradscope inspect or gradscope report shows why",
            )
        )
        return ExitCode.CANNOT_JUDGE
    is_failed = comparison.is_check and verdict.outcome == "failed"
    return ExitCode.FINDINGS if is_failed else ExitCode.OK
