"""`gradscope check`."""

import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradscope.cli import options
from gradscope.cli.arguments import given_arguments, split_arguments
from gradscope.cli.check_options import BaselineGroup, GateGroup
from gradscope.cli.console import ColorChoice, make_console
from gradscope.cli.further_reports import (
    AlsoOption,
    check_further_reports,
    write_further_reports,
)
from gradscope.cli.option_groups import with_groups
from gradscope.cli.output import (
    Destination,
    check_destinations,
    files_of_target,
    set_verbosity,
    write_text,
)
from gradscope.cli.running import kept_as_saved, typed_command
from gradscope.cli.wanted_output import wanted_output
from gradscope.config.formats import OutputFormat
from gradscope.errors import GradscopeError

if TYPE_CHECKING:
    from gradscope.check.options import PlannedTarget
    from gradscope.check.results import CheckResult
    from gradscope.config import Configuration

_RECORDING = ".gradscope"

CheckArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TARGET|RECORDING",
        help="path/file.py[:EXPR], package.module[:EXPR], a target's name in the configuration, or "
        "a .gradscope file or a folder of them. Default: every configured target. Arguments "
        "after -- go to the target's file (sys.argv).",
        show_default=False,
    ),
]
NoStepSummaryOption = Annotated[
    bool,
    typer.Option(
        "--no-step-summary",
        help="With --output-format github, do not write $GITHUB_STEP_SUMMARY.",
        rich_help_panel="Output",
    ),
]


@with_groups
def check(  # noqa: PLR0913 - the signature is the list of options
    gate: GateGroup,
    loading: options.TargetGroup,
    trial: options.TrialGroup,
    rules: options.RulesGroup,
    baseline: BaselineGroup,
    targets: CheckArguments = None,
    output_format: options.OutputFormatOption = None,
    output_file: options.ReportFileOption = "-",
    open_page: options.OpenOption = False,
    also: AlsoOption = None,
    no_step_summary: NoStepSummaryOption = False,
    save: options.SaveRunsOption = None,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    verbose: options.VerboseOption = False,
    color: options.ColorOption = "auto",
) -> None:
    """Fail if gradients are broken, for continuous integration.

    Exit code: 0 if all gradients pass, 1 for findings, 2 if something could not be checked.
    """
    set_verbosity(quiet=quiet, verbose=verbose)
    # What reads and runs is loaded for those who check, not for --help.
    from gradscope.check.decision import exit_code
    from gradscope.cli.checking import baseline_applied, check_baseline, checked
    from gradscope.cli.github import add_step_summary, commands_off
    from gradscope.cli.saving import recording_locations, save_runs
    from gradscope.config import read_configuration

    given, args = split_arguments(targets or [], sys.argv)
    named = tuple(_unfolded(given))
    configuration = read_configuration(rules.config)
    settings = gate.settings(rules, configuration.settings)
    overrides = {**loading.given(), **trial.given(), **gate.running()}
    # Limits for another target match nothing in this one.
    is_whole = not named or {*configuration.targets} <= {*named}
    found = _subjects(configuration, named, {**overrides, **given_arguments(args)})
    subjects = _kept(found, trial, is_saved=save is not None)
    planned = [subject for subject in subjects if not isinstance(subject, Path)]
    known = baseline.chosen(configuration.baseline)
    check_baseline(baseline, known)
    # Nothing may take the place of anything that the check reads or keeps.
    read = (*_files_read(subjects), *((known.file,) if known.file else ()))
    positions = {} if save is None else recording_locations(save, planned, read, force=force)
    kept = (*read, *positions.values())
    wanted = wanted_output(
        output_format,
        output_file,
        is_opened=open_page,
        subject=named[0] if len(named) == 1 else "check",
        default=configuration.output_format,
    )
    destination = check_destinations(wanted.file, None, force=False, inputs=kept).report
    further = check_further_reports(also or (), destination, kept)
    policy = gate.policy(configuration.policy)
    with commands_off(is_wanted=wanted.form == "github"):
        result = checked(subjects, settings, typed_command(), policy=policy, is_whole=is_whole)
    result = baseline_applied(result, baseline, known)
    _write(result, wanted.form, destination, is_brief=quiet, color=color)
    write_further_reports(result, further)
    save_runs(result, positions, force=force)
    if wanted.form == "github" and not no_step_summary:
        add_step_summary(result)
    wanted.open(destination)
    raise typer.Exit(exit_code(result))


def _write(
    result: "CheckResult",
    form: OutputFormat,
    destination: Destination | None,
    *,
    is_brief: bool,
    color: ColorChoice,
) -> None:
    """Write a report on a check to a file, or to stdout."""
    from gradscope.report.check.phrasing import closing_text
    from gradscope.report.render import render_check

    console = make_console(sys.stdout if destination is None else io.StringIO(), color)
    text = render_check(result, form, console, is_brief=is_brief)
    write_text(text, destination, sys.stdout, outcome=closing_text(result))


def _unfolded(given: Iterable[str]) -> Iterator[str]:
    """Yield what was given, and in place of a folder of recordings what is in it."""
    for name in given:
        found = sorted(Path(name).glob(f"*{_RECORDING}")) if name and Path(name).is_dir() else []
        yield from map(str, found) if found else (name,)


def _subjects(
    configuration: "Configuration", named: Sequence[str], overrides: Mapping[str, options.Value]
) -> "list[PlannedTarget | Path]":
    """Return what is checked, in the order given: targets to run, and recordings.

    Raises:
        GradscopeError: There is nothing to check, or options for targets without a target.
    """
    from gradscope.config import plan_targets

    targets = tuple(name for name in named if not name.endswith(_RECORDING))
    if named and not targets:
        if overrides:
            raise GradscopeError(
                f"--{next(iter(overrides))} applies to targets, not to recordings",
                help="remove it, or name a target",
            )
        return [Path(name) for name in dict.fromkeys(named)]
    planned = {target.name: target for target in plan_targets(configuration, targets, overrides)}
    names = dict.fromkeys(named or planned)
    return [planned[name] if name in planned else Path(name) for name in names]


def _kept(
    subjects: "Iterable[PlannedTarget | Path]", trial: options.TrialGroup, *, is_saved: bool
) -> "list[PlannedTarget | Path]":
    """Return what is checked, targets with the gradients that their recordings are to keep."""
    return [
        one
        if isinstance(one, Path)
        else kept_as_saved(one, trial.keep_gradients, is_saved=is_saved)
        for one in subjects
    ]


def _files_read(subjects: "Sequence[PlannedTarget | Path]") -> Iterator[Path]:
    """Yield the files that may be read, where no report goes."""
    for subject in subjects:
        if isinstance(subject, Path):
            yield subject
        else:
            yield from files_of_target(subject)
