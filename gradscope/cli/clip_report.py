"""`gradscope clip-report`."""

import io
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from gradscope.cli import options
from gradscope.cli.arguments import given_arguments, split_arguments
from gradscope.cli.clip_source import is_recording, nearest
from gradscope.cli.console import ColorChoice, make_console
from gradscope.cli.option_groups import with_groups
from gradscope.cli.output import (
    Destination,
    check_destinations,
    files_of_target,
    save_recording,
    set_verbosity,
    write_text,
)
from gradscope.cli.report import check_count
from gradscope.cli.rules import judged, settings_of
from gradscope.cli.running import exit_if_broken, kept_as_saved, planned_target, record_planned
from gradscope.cli.streams import reserved_stdout
from gradscope.cli.wanted_output import wanted_output
from gradscope.config.formats import OutputFormat, is_of_ci
from gradscope.errors import GradscopeError

if TYPE_CHECKING:
    from gradscope.analysis.report import Report
    from gradscope.check.options import PlannedTarget
    from gradscope.recording.records import Recording
    from gradscope.target.options import ClipOptions

DEFAULT_STEPS = 20
"""Default number of optimizer steps, without `--steps` and `--batches`."""
CLIP_RULES = ("clipping", "GS101", "GS103", "GS107")
"""Rules that judge clips, and problems that clips hide."""

_CLIP = "Clipping"

TargetsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TARGET|RECORDING",
        help="path/file.py[:EXPR] or package.module[:EXPR], or .gradscope files. Default: the "
        "configured target, or the newest recording here.",
        show_default=False,
    ),
]
MaxNormOption = Annotated[
    str | None,
    typer.Option(
        "--max-norm",
        metavar="X|auto",
        help="Largest global norm; auto chooses one. Default: the clip_grad_norm of the target's "
        "gradscope_setup(), otherwise auto.",
        rich_help_panel=_CLIP,
        show_default=False,
    ),
]
NormTypeOption = Annotated[
    str,
    typer.Option("--norm-type", metavar="2|inf|P", help="Type of the norm.", rich_help_panel=_CLIP),
]
ClipValueOption = Annotated[
    float | None,
    typer.Option(
        "--clip-value",
        metavar="V",
        help="Clip each element to at most this size.",
        rich_help_panel=_CLIP,
        show_default=False,
    ),
]
PerLayerOption = Annotated[
    bool,
    typer.Option(
        "--per-layer",
        help="Clip each parameter's gradient by its own norm.",
        rich_help_panel=_CLIP,
    ),
]
AgcOption = Annotated[
    float | None,
    typer.Option(
        "--agc",
        metavar="RATIO",
        help="Clip each unit's gradient to X times the norm of its weights.",
        rich_help_panel=_CLIP,
        show_default=False,
    ),
]
BatchesOption = Annotated[
    int | None,
    typer.Option(
        "--batches",
        min=1,
        metavar="N",
        help="Measure N batches after the steps. Without --steps, run no steps.",
        rich_help_panel=_CLIP,
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipGroup:
    """What to clip to."""

    max_norm: MaxNormOption = None
    norm_type: NormTypeOption = "2"
    clip_value: ClipValueOption = None
    per_layer: PerLayerOption = False
    agc: AgcOption = None
    batches: BatchesOption = None

    def chosen(self) -> "ClipOptions":
        """Return what was asked for.

        Raises:
            GradscopeError: A number is none, or not above zero.
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
        value = math.nan
    if value > 0 and (may_be_infinite or value < math.inf):
        return value
    choice = ", or auto" if option == "--max-norm" else ", or inf" if may_be_infinite else ""
    raise GradscopeError(f"{option} {given!r} is not a number above zero{choice}")


@with_groups
def clip_report(  # noqa: PLR0913 - the signature is the list of options
    clip: ClipGroup,
    loading: options.TargetGroup,
    trial: options.TrialGroup,
    view: options.ViewGroup,
    rules: options.RulesGroup,
    targets: TargetsArgument = None,
    output_format: options.OutputFormatOption = None,
    output_file: options.ReportFileOption = "-",
    open_page: options.OpenOption = False,
    save: options.SaveOption = None,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    verbose: options.VerboseOption = False,
    color: options.ColorOption = "auto",
) -> None:
    """Show how often and how strongly clipping changes gradients, and which layers cause it.

    A target runs optimizer steps, and is restored afterwards: 20 steps without --steps and
    --batches. A recording of a run shows the effect of the script's own clip calls.
    """
    set_verbosity(quiet=quiet, verbose=verbose)
    from gradscope.config import read_configuration

    configuration = read_configuration(rules.config)
    settings = settings_of(rules, configuration.settings)
    if not settings.select:
        settings = replace(settings, select=CLIP_RULES)
    clipping = clip.chosen()
    given, args = split_arguments(targets or (), sys.argv)
    chosen = given or (nearest(configuration),)
    recordings = _recordings(chosen)
    planned = None
    if not recordings:
        overrides = {**loading.given(), **trial.given(), **given_arguments(args)}
        planned = _with_clipping(
            planned_target(chosen[0], configuration, overrides), clipping, clip
        )
        planned = kept_as_saved(planned, trial.keep_gradients, is_saved=save is not None)
    elif save is not None:
        raise GradscopeError("nothing to --save: the recordings are already saved")
    read = recordings if planned is None else files_of_target(planned)
    wanted = wanted_output(output_format, output_file, is_opened=open_page, subject=chosen[0])
    destinations = check_destinations(wanted.file, save, force=force, inputs=read)
    check_count(len(chosen), "recordings", wanted)
    with reserved_stdout() as stdout:
        reports = [judged(one, settings) for one in _recorded(planned, recordings)]
        if destinations.recording is not None:
            save_recording(reports[0], destinations.recording, force=force)
        # Where autograd ended the first step, there is nothing to tell beside what was told.
        shown = [one for one in reports if not is_ended_at_once(one)]
        if shown:
            _write(shown, wanted.form, view, destinations.report, stdout, color)
            wanted.open(destinations.report)
    for report in reports:
        exit_if_broken(report)


def is_ended_at_once(report: "Report") -> bool:
    """Return whether autograd ended the first step of a target, before there was a gradient."""
    from gradscope.analysis.step_view import ended_by
    from gradscope.recording.evidence.clipping import ClipTrial

    recording = report.recording
    return ended_by(recording) is not None and not recording.evidence_of(ClipTrial)


def _recordings(chosen: Sequence[str]) -> tuple[Path, ...]:
    """Return the recordings that were named; none where it is a target.

    Raises:
        GradscopeError: There are both, or several targets.
    """
    recordings = tuple(Path(text) for text in chosen if is_recording(text))
    if len(recordings) == len(chosen) or len(chosen) == 1:
        return recordings
    raise GradscopeError(
        "clip-report takes one target or several recordings",
        help="run it once per target",
    )


def _with_clipping(
    planned: "PlannedTarget", clipping: "ClipOptions", clip: ClipGroup
) -> "PlannedTarget":
    """Return how to run a target, with so many steps that there is something to tell."""
    trial = planned.trial
    steps = trial.steps or (DEFAULT_STEPS if clip.batches is None else 0)
    return replace(planned, trial=replace(trial, steps=steps, clipping=clipping))


def _recorded(planned: "PlannedTarget | None", recordings: Sequence[Path]) -> "Iterator[Recording]":
    if planned is not None:
        yield record_planned(planned)
        return
    from gradscope.recording.store import load_recording

    yield from map(load_recording, recordings)


def _write(
    reports: "Sequence[Report]",
    output_format: OutputFormat,
    view: options.ViewGroup,
    destination: Destination | None,
    stdout: TextIO,
    color: ColorChoice,
) -> None:
    from gradscope.report.render import render_ci, render_clip_report, together

    if is_of_ci(output_format):
        write_text(render_ci(together(reports), output_format), destination, stdout)
        return
    if output_format == "html":
        from gradscope.report.html.clip_tab import render_clip_html

        write_text(render_clip_html(reports), destination, stdout)
        return
    console = make_console(stdout if destination is None else io.StringIO(), color)
    for report in reports:
        text = render_clip_report(report, output_format, view.chosen(can_save=True), console)
        write_text(text, destination, stdout)
