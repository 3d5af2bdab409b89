"""`gradscope check`."""

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gradscope.check.options import BaselineOptions, PlannedTarget, Policy
from gradscope.cli import options
from gradscope.cli.check_outputs import (
    AlsoOption,
    FurtherReport,
    Positions,
    add_step_summary,
    check_further_reports,
    commands_off,
    recording_locations,
    save_runs,
    write_further_reports,
)
from gradscope.cli.console import ColorChoice, make_console
from gradscope.cli.errors import write_line
from gradscope.cli.options import given_arguments, split_arguments, with_groups
from gradscope.cli.output import (
    Destination,
    WantedOutput,
    check_destinations,
    files_of_target,
    set_verbosity,
    wanted_output,
    write_text,
)
from gradscope.cli.rank_recordings import are_recordings, recording_paths
from gradscope.cli.running import kept_as_saved, settings_of, typed_command
from gradscope.config.formats import OutputFormat, OutputFormatOption
from gradscope.errors import GradscopeError
from gradscope.fixes.options import FixOptions
from gradscope.frozen import dataclass
from gradscope.options.declaration import Argument, Option, Overrides, declarations, field_values
from gradscope.rules.settings import NormLimit, Settings

if TYPE_CHECKING:
    from gradscope.check.results import CheckResult
    from gradscope.config import Configuration
    from gradscope.recording.finding import Finding

_RECORDING = ".gradscope"

CheckArguments = Annotated[
    list[str] | None,
    Argument(
        metavar="TARGET|RECORDING",
        help="path/file.py[:EXPR], package.module[:EXPR], a target's name in the configuration, or "
        "a .gradscope file or a folder of them. Default: every configured target. Arguments "
        "after -- go to the target's file (sys.argv).",
        show_default=False,
    ),
]
ExitZeroOption = Annotated[
    bool,
    Option(
        help="Exit with code 0 even with findings; still 2 if nothing could be checked.",
        panel="Check",
    ),
]
JobsOption = Annotated[
    int | None,
    Option(
        min=1,
        metavar="N",
        help="Run N targets and seeds at a time. Default: the number of cores, and 1 with "
        "--device of another kind than cpu.",
        panel="Check",
    ),
]
LimitOptions = Annotated[Overrides, Policy, NormLimit, PlannedTarget]
"""Overrides options that say when the check fails, and how often and how long a target runs."""
BaselineOverrides = Annotated[Overrides, BaselineOptions]
"""Overrides options for findings that are already known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutput:
    """Output options of a check."""

    output_format: OutputFormatOption = None
    output_file: options.ReportFileOption = "-"
    open_page: options.OpenOption = False
    also: AlsoOption = None
    no_step_summary: Annotated[
        bool,
        Option(
            help="With --output-format github, do not write $GITHUB_STEP_SUMMARY.",
            panel="Output",
        ),
    ] = False
    save: Annotated[
        Path | None,
        Option(
            metavar="RECORDING|FOLDER",
            help="Save the recording, or the recordings of several runs in a folder.",
            panel="Output",
        ),
    ] = None
    force: options.ForceOption = False
    quiet: options.QuietOption = False
    verbose: options.VerboseOption = False
    color: options.ColorOption = "auto"


@with_groups
def check(  # noqa: PLR0913 - as many groups of options
    *,
    targets: CheckArguments = None,
    limits: LimitOptions,
    exit_zero: ExitZeroOption = False,
    jobs: JobsOption = None,
    trial: options.TrialOptions,
    rules: options.RuleOptions,
    baseline: BaselineOverrides,
    fixes: FixOptions,
    output: CheckOutput,
) -> None:
    """Fail if gradients are broken, for continuous integration.

    Exit code: 0 if all gradients pass, 1 for findings, 2 if something could not be checked.
    """
    set_verbosity(quiet=output.quiet, verbose=output.verbose)
    # Deferred: --help does not need them.
    from gradscope.check.results import exit_code
    from gradscope.cli.checking import (
        baseline_applied,
        check_baseline,
        checked,
        chosen_baseline,
        usual_limit,
    )
    from gradscope.config import read_configuration

    given, args = split_arguments(targets or [], sys.argv)
    named = tuple(_unfolded(given))
    configuration = read_configuration(options.ConfigurationFile.of(rules))
    settings = settings_of({**rules, **limits}, configuration.settings)
    repeated = {key: limits[key] for key in declarations(PlannedTarget) if key in limits}
    found = _subjects(configuration, named, {**trial, **repeated, **given_arguments(args)})
    subjects = _saved(found, trial, is_saved=output.save is not None)
    planned = [subject for subject in subjects if not isinstance(subject, Path)]
    fixes = fixes.usable(write_line, runs_targets=len(planned) == len(subjects))
    known = chosen_baseline(configuration.baseline, baseline)
    check_baseline(known, baseline)
    # No output may overwrite a file that the check reads or keeps.
    read = (*_files_read(subjects), *((known.file,) if known.file else ()))
    outputs = _outputs(output, named, planned, read, configuration.output_format)
    form, destination = outputs.wanted.form, outputs.destination
    policy = replace(
        configuration.policy,
        exit_zero=exit_zero,
        **field_values(Policy, limits),  # type: ignore[arg-type]
    )
    with commands_off(is_wanted=form == "github"):
        run = partial(
            checked,
            subjects,
            settings,
            typed_command(),
            policy=policy,
            # Limits for another target match nothing in this one.
            is_whole=not named or {*configuration.targets} <= {*named},
            limit=jobs or usual_limit(planned),
            is_reported=form == "full" and destination is None and not fixes.diff,
        )
        result, hidden = _fixed(run(), planned, settings, fixes, run)
    result = baseline_applied(result, known)
    if fixes.diff and form == "full":
        _write_fixes(result, hidden, destination, output.color)
    else:
        _write(result, form, destination, is_brief=output.quiet, color=output.color)
    outputs.write_others(result, output)
    sys.exit(exit_code(result))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outputs:
    """What a check writes, and to which files."""

    wanted: WantedOutput
    destination: Destination | None
    """File of the report; None for stdout."""
    further: tuple[FurtherReport, ...]
    positions: Positions
    """Files of the recordings; empty if they are not saved."""

    def write_others(self, result: "CheckResult", output: CheckOutput) -> None:
        """Write the further reports, the recordings and the step summary; open the page."""
        write_further_reports(result, self.further)
        save_runs(result, self.positions, force=output.force)
        if self.wanted.form == "github" and not output.no_step_summary:
            add_step_summary(result)
        self.wanted.open(self.destination)


def _outputs(
    output: CheckOutput,
    named: Sequence[str],
    planned: "Sequence[PlannedTarget]",
    read: Sequence[Path],
    default: OutputFormat | None,
) -> _Outputs:
    """Return what to write, before anything runs.

    Raises:
        GradscopeError: An output would overwrite a file that the check reads, or another output.
    """
    positions = (
        {}
        if output.save is None
        else recording_locations(output.save, planned, read, force=output.force)
    )
    kept = (*read, *positions.values())
    wanted = wanted_output(
        output.output_format,
        output.output_file,
        is_opened=output.open_page,
        subject=named[0] if len(named) == 1 else "check",
        default=default,
    )
    destination = check_destinations(wanted.file, None, force=False, inputs=kept).report
    further = check_further_reports(output.also or (), destination, kept)
    return _Outputs(wanted=wanted, destination=destination, further=further, positions=positions)


def _fixed(
    result: "CheckResult",
    planned: "Sequence[PlannedTarget]",
    settings: Settings,
    fixes: FixOptions,
    run: "Callable[[], CheckResult]",
) -> "tuple[CheckResult, tuple[Finding, ...]]":
    """Return a check with the fixes that are asked for, and the findings with a hidden one."""
    if not fixes.is_wanted:
        return result, ()
    from gradscope.cli.fixing import fixed_check  # needs libcst

    return fixed_check(result, planned, settings, fixes, run)


def _write_fixes(
    result: "CheckResult",
    hidden: "Sequence[Finding]",
    destination: Destination | None,
    color: ColorChoice,
) -> None:
    from gradscope.cli.fixing import write_fixes  # needs libcst

    shown = [
        (item.finding, target.runs[item.run].recording.target.root)
        for target in result.targets
        for item in target.counted()
    ]
    write_fixes(shown, hidden, destination, sys.stdout, color)


def _write(
    result: "CheckResult",
    form: OutputFormat,
    destination: Destination | None,
    *,
    is_brief: bool,
    color: ColorChoice,
) -> None:
    """Write a report on a check to a file, or to stdout."""
    from gradscope.report.documents.check import closing_text
    from gradscope.report.render import Manner, finding_lines, render_check

    console = make_console(sys.stdout if destination is None else io.StringIO(), color)
    text = render_check(result, form, console, Manner(is_brief=is_brief))
    findings = finding_lines(result) if destination is not None else ()
    write_text(text, destination, sys.stdout, outcome=closing_text(result), findings=findings)


def _unfolded(given: Iterable[str]) -> Iterator[str]:
    """Yield the arguments; a folder is replaced by its recordings, a base name by its ranks."""
    for name in given:
        yield from map(str, recording_paths([Path(name)])) if are_recordings(name) else (name,)


def _subjects(
    configuration: "Configuration", named: Sequence[str], overrides: Overrides
) -> "list[PlannedTarget | Path]":
    """Return the targets to run and the recordings, in the order given.

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


def _saved(
    subjects: "Iterable[PlannedTarget | Path]", trial: Overrides, *, is_saved: bool
) -> "list[PlannedTarget | Path]":
    """Return the subjects; targets store gradients only if their recordings are saved."""
    return [
        one if isinstance(one, Path) else kept_as_saved(one, trial, is_saved=is_saved)
        for one in subjects
    ]


def _files_read(subjects: "Sequence[PlannedTarget | Path]") -> Iterator[Path]:
    """Yield the files that the check may read; no report may overwrite them."""
    for subject in subjects:
        if isinstance(subject, Path):
            yield subject
        else:
            yield from files_of_target(subject)
