"""`gradscope clip-report`."""

import io
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

from gradscope.analysis.view import ViewOptions
from gradscope.cli import options
from gradscope.cli.console import make_console, reserved_stdout
from gradscope.cli.errors import show_note
from gradscope.cli.options import given_arguments, split_arguments, with_groups
from gradscope.cli.output import (
    Destination,
    check_destinations,
    files_of_target,
    save_recording,
    set_verbosity,
    wanted_output,
    write_text,
)
from gradscope.cli.rank_recordings import are_recordings, loaded_jobs, recording_paths
from gradscope.cli.report import check_count
from gradscope.cli.running import (
    exit_if_broken,
    judged_job,
    kept_as_saved,
    planned_target,
    record_planned,
    settings_of,
)
from gradscope.config.formats import OutputFormat, is_of_ci
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.options.declaration import Argument, Option

if TYPE_CHECKING:
    from gradscope.analysis.report import Report
    from gradscope.check.options import PlannedTarget
    from gradscope.config import Configuration
    from gradscope.rules.settings import Settings
    from gradscope.target.options import ClipOptions

DEFAULT_STEPS = 20
"""Default number of optimizer steps, without `--steps` and `--batches`."""
CLIP_RULES = ("clipping", "GS101", "GS103", "GS107")
"""Rules that judge clips, and problems that clips hide."""

_CLIP = "Clipping"

TargetsArgument = Annotated[
    list[str] | None,
    Argument(
        metavar="TARGET|RECORDING",
        help="path/file.py[:EXPR] or package.module[:EXPR], or .gradscope files; the ranks of a "
        "job or a folder of them are one. Default: the configured target, or the newest recording "
        "here.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodOptions:
    """Clipping methods to measure, as typed."""

    max_norm: Annotated[
        str | None,
        Option(
            metavar="X|auto",
            help="Largest global norm; auto chooses one. Default: the clip_grad_norm of the "
            "target's gradscope_setup(), otherwise auto.",
            panel=_CLIP,
            show_default=False,
        ),
    ] = None
    norm_type: Annotated[str, Option(metavar="2|inf|P", help="Type of the norm.", panel=_CLIP)] = (
        "2"
    )
    clip_value: Annotated[
        float | None,
        Option(
            metavar="V",
            help="Clip each element to at most this size.",
            panel=_CLIP,
            show_default=False,
        ),
    ] = None
    per_layer: Annotated[
        bool, Option(help="Clip each parameter's gradient by its own norm.", panel=_CLIP)
    ] = False
    agc: Annotated[
        float | None,
        Option(
            metavar="RATIO",
            help="Clip each unit's gradient to RATIO times the norm of its weights.",
            panel=_CLIP,
            show_default=False,
        ),
    ] = None
    batches: Annotated[
        int | None,
        Option(
            min=1,
            metavar="N",
            help="Measure N batches after the steps. Without --steps, run no steps.",
            panel=_CLIP,
            show_default=False,
        ),
    ] = None

    def chosen(self) -> "ClipOptions":
        """Return the methods to measure.

        Raises:
            GradscopeError: A value is not a number above zero.
        """
        from gradscope.target.options import ClipOptions

        largest = None if self.max_norm in (None, "auto") else self.max_norm
        if self.per_layer and largest is None:
            raise GradscopeError(
                "--per-layer needs a limit for each parameter", help="add --max-norm X"
            )
        return ClipOptions(
            max_norm=None if largest is None else _positive("--max-norm", largest),
            finds_norm=self.max_norm == "auto",
            norm_type=_positive("--norm-type", self.norm_type, may_be_infinite=True),
            value=None if self.clip_value is None else _positive("--clip-value", self.clip_value),
            per_tensor=self.per_layer,
            adaptive_ratio=None if self.agc is None else _positive("--agc", self.agc),
            batches=self.batches or 1,
        )


def _positive(option: str, given: str | float, *, may_be_infinite: bool = False) -> float:
    try:
        value = float(given)
    except ValueError:
        # NaN is not above zero, and is rejected below.
        value = math.nan
    if value > 0 and (may_be_infinite or value < math.inf):
        return value
    choice = ", or auto" if option == "--max-norm" else ", or inf" if may_be_infinite else ""
    raise GradscopeError(f"{option} {given!r} is not a number above zero{choice}")


@with_groups
def clip_report(
    *,
    targets: TargetsArgument = None,
    clip: MethodOptions,
    trial: options.TrialOptions,
    view: ViewOptions,
    rules: options.RuleOptions,
    output: options.TargetOutput,
) -> None:
    """Show how often and how strongly clipping changes gradients, and which layers cause it.

    A target runs optimizer steps, and is restored afterwards: 20 steps without --steps and
    --batches. A recording of a run shows the effect of the script's own clip calls.
    """
    set_verbosity(quiet=output.quiet, verbose=output.verbose)
    from gradscope.config import read_configuration

    configuration = read_configuration(options.ConfigurationFile.of(rules))
    settings = settings_of(rules, configuration.settings)
    clipping = clip.chosen()
    given, args = split_arguments(targets or (), sys.argv)
    chosen = given or (nearest(configuration),)
    recordings = _recordings(chosen)
    planned = None
    if not recordings:
        overrides = {**trial, **given_arguments(args)}
        planned = _with_clipping(
            planned_target(chosen[0], configuration, overrides), clipping, clip
        )
        planned = kept_as_saved(planned, trial, is_saved=output.save is not None)
    elif output.save is not None:
        raise GradscopeError("nothing to --save: the recordings are already saved")
    read = recordings if planned is None else files_of_target(planned)
    wanted = wanted_output(
        output.output_format, output.output_file, is_opened=output.open_page, subject=chosen[0]
    )
    destinations = check_destinations(wanted.file, output.save, force=output.force, inputs=read)
    jobs = loaded_jobs(recordings)
    check_count(len(jobs) or 1, "recordings", wanted)
    with reserved_stdout() as stdout:
        ranks = [(record_planned(planned),)] if planned else [job.recordings for job in jobs]
        reports = [_on_clipping(judged_job(one, settings), settings) for one in ranks]
        if destinations.recording is not None:
            save_recording(reports[0], destinations.recording, force=output.force)
        # If autograd ended the first step, the error on stderr is the whole report.
        shown = [one for one in reports if not is_ended_at_once(one)]
        if shown:
            _write(shown, wanted.form, view, destinations.report, stdout, output)
            wanted.open(destinations.report)
    for report in reports:
        exit_if_broken(report)


def _on_clipping(report: "Report", settings: "Settings") -> "Report":
    """Return a report with the findings on clipping alone, unless rules were selected."""
    if settings.select:
        return report
    from gradscope.rules.selection import narrowed

    verdict = narrowed(report.rules, replace(settings, select=CLIP_RULES))
    return replace(report, findings=verdict.findings, rules=verdict)


def is_ended_at_once(report: "Report") -> bool:
    """Return whether autograd ended the first step of a target, before there was a gradient."""
    from gradscope.analysis.recording_index import ended_by
    from gradscope.recording.evidence.training import ClipTrial

    recording = report.recording
    return ended_by(recording) is not None and not recording.evidence_of(ClipTrial)


def _recordings(chosen: Sequence[str]) -> tuple[Path, ...]:
    """Return the files of the named recordings; none if a target is named.

    Raises:
        GradscopeError: Recordings and targets are named, or several targets.
    """
    named = [Path(text) for text in chosen if are_recordings(text)]
    if len(named) == len(chosen):
        return tuple(recording_paths(named))
    if len(chosen) == 1:
        return ()
    raise GradscopeError(
        "clip-report takes one target or several recordings",
        help="run it once per target",
    )


def _with_clipping(
    planned: "PlannedTarget", clipping: "ClipOptions", clip: MethodOptions
) -> "PlannedTarget":
    """Return how to run a target, by default with enough steps for a report."""
    trial = planned.trial
    steps = trial.steps or (DEFAULT_STEPS if clip.batches is None else 0)
    return replace(planned, trial=replace(trial, steps=steps, clipping=clipping))


def _write(
    reports: "Sequence[Report]",
    output_format: OutputFormat,
    view: ViewOptions,
    destination: Destination | None,
    stdout: TextIO,
    output: options.TargetOutput,
) -> None:
    from gradscope.report.render import (
        Manner,
        finding_lines,
        render_ci,
        render_clip_report,
        together,
    )

    findings = finding_lines(together(reports)) if destination is not None else ()
    if is_of_ci(output_format):
        text = render_ci(together(reports), output_format)
        write_text(text, destination, stdout, findings=findings)
        return
    if output_format == "html":
        from gradscope.report.html.clip_tab import render_clip_html

        write_text(render_clip_html(reports), destination, stdout, findings=findings)
        return
    console = make_console(stdout if destination is None else io.StringIO(), output.color)
    shown = replace(view, can_save=True)
    manner = Manner(is_brief=output.quiet)
    for report in reports:
        text = render_clip_report(report, output_format, shown, console, manner)
        write_text(text, destination, stdout, findings=findings)


def nearest(configuration: "Configuration") -> str:
    """Return the target or recording to use without an argument, and print it.

    It is the configured target, or the newest recording in the working directory.

    Raises:
        GradscopeError: There is neither, or several targets are configured.
    """
    names = tuple(configuration.targets)
    if len(names) > 1:
        raise GradscopeError(
            f"{len(names)} targets are configured: {', '.join(names)}",
            help=f"name one: gradscope clip-report {names[0]}",
        )
    if names:
        show_note(f"clipping of `{names[0]}`, the configured target")
        return names[0]
    found = [path for path in Path().glob("*.gradscope") if path.is_file()]
    if not found:
        raise GradscopeError(
            "no target given, none configured, and no recording here",
            help="gradscope clip-report model.py, or record a run: gradscope run train.py",
        )
    # Copied files may have equal times.
    newest = max(found, key=lambda path: (path.stat().st_mtime_ns, path.name))
    show_note(f"clipping of `{newest}`, the newest recording here")
    return str(newest)
