"""`gradscope compare`."""

import gc
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gradscope.cli import options
from gradscope.cli.arguments import given_arguments, split_arguments
from gradscope.cli.compare_options import (
    CompareArguments,
    ComparisonFormatOption,
    RegressionGroup,
    StepOption,
    TopOption,
    VaryOption,
)
from gradscope.cli.compared_sides import PlannedSide, planned_sides
from gradscope.cli.console import make_console
from gradscope.cli.errors import show_error, show_note
from gradscope.cli.option_groups import with_groups
from gradscope.cli.output import (
    check_destinations,
    files_of_target,
    set_verbosity,
    write_text,
)
from gradscope.cli.rules import judged, settings_of
from gradscope.cli.running import typed_command
from gradscope.cli.wanted_output import wanted_output
from gradscope.errors import ExitCode, GradscopeError
from gradscope.report.render import DEFAULT_TOP

if TYPE_CHECKING:
    from gradscope.comparison.comparison import Comparison


@with_groups
def compare(  # noqa: PLR0913 - the signature is the list of options
    gate: RegressionGroup,
    loading: options.TargetGroup,
    trial: options.TrialGroup,
    rules: options.RulesGroup,
    sides: CompareArguments = None,
    vary: VaryOption = None,
    step: StepOption = None,
    top: TopOption = DEFAULT_TOP,
    output_format: ComparisonFormatOption = None,
    output_file: options.OutputFileOption = "-",
    open_page: options.OpenOption = False,
    quiet: options.QuietOption = False,
    verbose: options.VerboseOption = False,
    color: options.ColorOption = "auto",
) -> None:
    """Compare gradients: before and after a change, or between dtypes, seeds, ranks or runs.

    Exit code: 0, or with --fail-on-regression 1 if one is worse than the first; 2 if nothing can be
    compared.
    """
    set_verbosity(quiet=quiet, verbose=verbose)
    from gradscope.comparison.comparison import compare as compared
    from gradscope.config import read_configuration
    from gradscope.report.comparison.phrasing import verdict_text
    from gradscope.report.render import render_comparison

    given, args = split_arguments(sides or [], sys.argv)
    configuration = read_configuration(rules.config)
    settings = settings_of(rules, configuration.settings)
    overrides = {**loading.given(), **trial.given(), **given_arguments(args)}
    planned = planned_sides(given, vary, configuration, overrides)
    wanted = wanted_output(output_format, output_file, is_opened=open_page, subject="comparison")
    destination = check_destinations(
        wanted.file, None, force=False, inputs=tuple(_files_read(planned))
    ).report
    reports = [(side.name, judged(side.recording(), settings)) for side in planned]
    gc.freeze()  # what was loaded stays to the end: long runs are millions of records
    comparison = compared(
        reports,
        gate.limits(),
        command=typed_command(),
        step=step,
        is_gate=gate.fail_on_regression,
    )
    console = make_console(sys.stdout if destination is None else io.StringIO(), color)
    text = render_comparison(comparison, wanted.form, console, top=top, is_brief=quiet)
    write_text(text, destination, sys.stdout, outcome=verdict_text(comparison))
    if destination is not None:
        _tell_regressions(comparison)
    wanted.open(destination)
    raise typer.Exit(_exit_code(comparison))


def _files_read(planned: Sequence[PlannedSide]) -> Iterator[Path]:
    """Yield the files that may be read, where no report goes."""
    for side in planned:
        if isinstance(side.source, Path):
            yield side.source
        else:
            yield from files_of_target(side.source)


def _tell_regressions(comparison: "Comparison") -> None:
    """Tell on stderr, which a job's log shows, what fails."""
    from gradscope.report.comparison.phrasing import regression_text

    for one in comparison.verdict.regressions if comparison.is_gate else ():
        letter = comparison.sides[one.side].letter
        show_note(f"{letter}: {regression_text(one, comparison)}")


def _exit_code(comparison: "Comparison") -> ExitCode:
    """Return the exit code, after telling why nothing can be compared where that is so."""
    verdict = comparison.verdict
    if verdict.outcome == "unjudged":
        show_error(
            GradscopeError(
                f"nothing to compare: {verdict.obstacles[0]}",
                help="gradscope inspect or gradscope report shows why",
            )
        )
        return ExitCode.CANNOT_JUDGE
    is_failed = comparison.is_gate and verdict.outcome == "failed"
    return ExitCode.FINDINGS if is_failed else ExitCode.OK
