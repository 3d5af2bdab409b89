"""`gradscope compare`."""

import gc
import io
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gradscope.cli import options
from gradscope.cli.console import make_console
from gradscope.cli.errors import show_error, show_note
from gradscope.cli.options import given_arguments, split_arguments, with_groups
from gradscope.cli.output import (
    check_destinations,
    files_of_target,
    set_verbosity,
    wanted_output,
    write_text,
)
from gradscope.cli.rank_recordings import are_recordings, loaded_job, recording_paths
from gradscope.cli.running import judged_job, settings_of, typed_command
from gradscope.comparison.tolerance import Tolerance
from gradscope.errors import ExitCode, GradscopeError
from gradscope.frozen import dataclass
from gradscope.options.declaration import Argument, Option
from gradscope.report.documents import DEFAULT_TOP

if TYPE_CHECKING:
    from gradscope.check.options import PlannedTarget
    from gradscope.comparison.comparison import Comparison
    from gradscope.config import Configuration
    from gradscope.options.checks import Value
    from gradscope.options.declaration import Overrides
    from gradscope.recording.records import Recording
    from gradscope.target.options import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSide:
    """A recording or a target, before it is read or run."""

    name: str
    """Name as the user knows it, with the varied value."""
    source: "tuple[Path, ...] | PlannedTarget"
    """Files of the recording, or of the ranks of a job."""

    def recordings(self) -> "tuple[Recording, ...]":
        """Read the recordings, or run the target in a process of its own.

        Raises:
            GradscopeError: A recording cannot be read, or the run failed.
        """
        if isinstance(self.source, tuple):
            return loaded_job(self.source).recordings
        return (_run(self.name, self.source),)


def planned_sides(
    given: Sequence[str],
    vary: str | None,
    configuration: "Configuration",
    overrides: "Overrides",
) -> tuple[PlannedSide, ...]:
    """Return the sides to compare, in the order given.

    Args:
        given: Recordings and targets.
        vary: An option of targets and its values, such as `seed=0,1`.
        configuration: The user's configuration.
        overrides: The options that were given, by the configuration's keys.

    Raises:
        GradscopeError: There are fewer than two sides, or options for targets without a target.
    """
    has_target = any(not are_recordings(name) for name in given)
    if overrides and not has_target:
        raise GradscopeError(
            f"--{next(iter(overrides))} applies to targets, not to recordings",
            help="remove it, or name a target",
        )
    if vary is not None and not has_target:
        raise GradscopeError("--vary applies to targets, not to recordings", help="name a target")
    varied = _varied(vary) if vary is not None else ()
    recorded = _recorded([name for name in given if are_recordings(name)], is_all=not has_target)
    sides = tuple(
        side for name in given for side in _sides(name, recorded, varied, configuration, overrides)
    )
    if len(sides) < 2:
        raise GradscopeError(
            "nothing to compare it with" if sides else "nothing to compare",
            help="gradscope compare before.gradscope after.gradscope, or model.py --vary seed=0,1",
        )
    return sides


def _recorded(names: Sequence[str], *, is_all: bool) -> dict[str, PlannedSide]:
    """Return the sides that are recorded, each under the first of its names.

    Ranks of one job are compared with each other if nothing else is given. Otherwise they are one
    side.

    Args:
        names: Recordings, folders of them, and names that the ranks of a job share.
        is_all: Whether nothing else is compared.
    """
    from gradscope.comparison.side import rank_of_file

    stems: dict[tuple[str, str], list[str]] = {}
    for name in names:
        rank = None if Path(name).is_dir() else rank_of_file(name)
        stems.setdefault((name, "") if rank is None else (rank[0], "rank"), []).append(name)
    if is_all and len(stems) == 1:
        stems = {(name, ""): [name] for name in names}
    found = {}
    for (stem, kind), several in stems.items():
        title = f"{stem}.gradscope" if kind and len(several) > 1 else several[0]
        files = tuple(recording_paths(map(Path, several)))
        found[several[0]] = PlannedSide(name=title, source=files)
    return found


def _sides(
    name: str,
    recorded: "Mapping[str, PlannedSide]",
    varied: "Sequence[tuple[str, str, Value]]",
    configuration: "Configuration",
    overrides: "Overrides",
) -> Iterator[PlannedSide]:
    if are_recordings(name):
        if name in recorded:
            yield recorded[name]
        return
    from gradscope.cli.running import planned_target

    if not varied:
        yield PlannedSide(name=name, source=planned_target(name, configuration, overrides))
    for key, text, value in varied:
        planned = planned_target(name, configuration, {**overrides, key: value})
        yield PlannedSide(name=f"{name} {key}={text}", source=planned)


def _flag(text: str) -> bool:
    # `bool` would take any word for true.
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _number(text: str) -> float:
    number = float(text)
    # Python reads `nan` and `inf` as numbers too.
    if not math.isfinite(number):
        raise ValueError(text)
    return number


_READERS: "Mapping[str, Callable[[str], Value]]" = {
    "seed": int,
    "dtype": str,
    "device": str,
    "mode": str,
    "checkpoint": str,
    "steps": int,
    "optimizer": str,
    "lr": _number,
    "eager": _flag,
}
"""The options that can be varied, and how their values are read."""


def _varied(text: str) -> "tuple[tuple[str, str, Value], ...]":
    """Return an option's name, and each of its values as text and as value.

    Raises:
        GradscopeError: The option cannot be varied, or a value is wrong.
    """
    key, _, values = text.partition("=")
    reader = _READERS.get(key.removeprefix("--"))
    if reader is None:
        raise GradscopeError(
            f"--vary {text!r}: {key!r} cannot be varied",
            help=f"one of {', '.join(_READERS)}: such as --vary seed=0,1",
        )
    found = []
    for value in values.split(","):
        try:
            found.append((key.removeprefix("--"), value, reader(value)))
        except ValueError:
            raise GradscopeError(
                f"--vary {text!r}: {value!r} is not a value of --{key}",
                help="such as --vary seed=0,1",
            ) from None
    return tuple(found)


def _run(name: str, planned: "PlannedTarget") -> "Recording":
    """Run a target in its own process: targets may define the same names, or change globals."""
    # Deferred: comparing recordings does not need them.
    from gradscope.cli.errors import VERBOSITY
    from gradscope.cli.processes.isolation import Job, run_apart
    from gradscope.cli.running import typed_command
    from gradscope.recording.records import Recording

    job = Job(
        name=name,
        spec=planned.spec,
        options=planned.options,
        trial=_keeping(planned.trial),
        command=typed_command(),
        level=VERBOSITY.level,
        progress=f"{name}: ",
    )
    seen = run_apart(job, planned.folder, planned.timeout)
    if isinstance(seen, Recording):
        return seen
    raise GradscopeError(f"cannot compare `{name}`: its run failed, see the error above")


def _keeping(trial: "Trial") -> "Trial":
    """Return a trial that stores gradients: norms alone do not give their directions."""
    return replace(trial, keep_gradients="sketch") if trial.keep_gradients == "none" else trial


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
    from gradscope.report.documents.comparison_phrasing import verdict_text
    from gradscope.report.render import Manner, comparison_findings, render_comparison

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
    manner = Manner(is_brief=output.quiet)
    text = render_comparison(comparison, wanted.form, console, top=scope.top, manner=manner)
    findings = comparison_findings(comparison) if destination is not None else ()
    write_text(text, destination, sys.stdout, outcome=verdict_text(comparison), findings=findings)
    if destination is not None:
        _tell_regressions(comparison)
    wanted.open(destination)
    is_told = not output.quiet if destination is not None else wanted.form != "json"
    sys.exit(_exit_code(comparison, is_told=is_told))


def _files_read(planned: Sequence[PlannedSide]) -> Iterator[Path]:
    """Yield the files that the comparison may read; no report may overwrite them."""
    for side in planned:
        if isinstance(side.source, tuple):
            yield from side.source
        else:
            yield from files_of_target(side.source)


def _tell_regressions(comparison: "Comparison") -> None:
    """Print the regressions on stderr, for the log of a job."""
    from gradscope.report.documents.comparison_phrasing import regression_text

    for one in comparison.verdict.regressions if comparison.is_check else ():
        letter = comparison.sides[one.side].letter
        show_note(f"{letter}: {regression_text(one, comparison)}")


def _exit_code(comparison: "Comparison", *, is_told: bool) -> ExitCode:
    """Return the exit code; print an error if nothing can be compared.

    Args:
        comparison: What was compared.
        is_told: Whether the reason was printed with the report, or in the note of its file.
    """
    verdict = comparison.verdict
    if verdict.outcome == "unjudged":
        show_error(
            GradscopeError(
                "nothing to compare"
                if is_told
                else f"nothing to compare: {verdict.skip_reasons[0]}",
                help="gradscope inspect or gradscope report shows why",
            )
        )
        return ExitCode.CANNOT_JUDGE
    is_failed = comparison.is_check and verdict.outcome == "failed"
    return ExitCode.FINDINGS if is_failed else ExitCode.OK
