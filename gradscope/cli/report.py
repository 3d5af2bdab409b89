"""`gradscope report`."""

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradscope.cli import options
from gradscope.cli.jobs import grouped, recording_paths
from gradscope.cli.option_groups import with_groups
from gradscope.cli.output import (
    check_destinations,
    outcome_of,
    set_verbosity,
    write_report,
    write_text,
)
from gradscope.cli.rules import judged_job, settings_of
from gradscope.cli.wanted_output import WantedOutput, wanted_output
from gradscope.config.formats import holds_several, is_of_ci
from gradscope.errors import GradscopeError

if TYPE_CHECKING:
    from gradscope.analysis.report import Report
    from gradscope.recording.records import Recording
    from gradscope.rules.settings import Settings

RecordingArguments = Annotated[
    list[Path],
    typer.Argument(
        metavar="RECORDING",
        help="Recordings written by --save, or a folder of them. Ranks of a job are one report.",
        show_default=False,
    ),
]


StepOption = Annotated[
    int | None,
    typer.Option(
        "--step",
        min=0,
        metavar="N",
        help="Show every tensor of this step of a training run.",
        show_default=False,
    ),
]


@with_groups
def report(  # noqa: PLR0913 - the signature is the list of options
    recordings: RecordingArguments,
    view: options.ViewGroup,
    rules: options.RulesGroup,
    step: StepOption = None,
    output_format: options.OutputFormatOption = None,
    output_file: options.ReportFileOption = "-",
    open_page: options.OpenOption = False,
    quiet: options.QuietOption = False,
    color: options.ColorOption = "auto",
) -> None:
    """Render saved recordings in any format, without running code."""
    set_verbosity(quiet=quiet, verbose=False)
    wanted = wanted_output(
        output_format, output_file, is_opened=open_page, subject=str(recordings[0])
    )
    destination = check_destinations(wanted.file, None, force=False, inputs=recordings).report
    # sqlite3 is loaded for those who read a recording, not for --help.
    from gradscope.recording.store import load_recording
    from gradscope.report.render import render_ci, together

    settings = settings_of(rules)
    paths = list(recording_paths(recordings))
    jobs = grouped(paths, [load_recording(path) for path in paths])
    check_count(len(jobs), "recordings", wanted)
    # What was loaded stays to the end; a long run is a million records for the collector to visit.
    gc.freeze()
    if step is None:
        reports = [judged_job(job.recordings, settings) for job in jobs]
    else:
        reports = [
            one
            for job in jobs
            for run in job.recordings
            for one in step_reports(run, step, settings)
        ]
        check_count(len(reports), "backward passes", wanted)
    if is_of_ci(wanted.form):
        write_text(render_ci(together(reports), wanted.form), destination, sys.stdout)
        return
    if wanted.form == "html":
        from gradscope.report.html.render import render_html

        outcome = outcome_of(reports[0]) if len(reports) == 1 else ""
        write_text(render_html(reports), destination, sys.stdout, outcome=outcome)
        wanted.open(destination)
        return
    for one in reports:
        write_report(
            one,
            wanted.form,
            view.chosen(),
            destination=destination,
            stdout=sys.stdout,
            color=color,
        )


def check_count(count: int, things: str, wanted: WantedOutput) -> None:
    """Make sure that the output can hold as many reports as there are things to report on.

    Raises:
        GradscopeError: It holds one, and there are more.
    """
    if count == 1 or holds_several(wanted.form):
        return
    one = "give one recording, or " if things == "recordings" else ""
    if wanted.file != "-":
        raise GradscopeError(
            f"`{wanted.file}` can hold one report, but there are {count} {things}",
            help=f"{one}remove --output-file",
        )
    if wanted.form == "json":
        raise GradscopeError(
            f"`json` holds one report, but there are {count} {things}",
            help=f"{one}--output-format jsonl",
        )


def step_reports(recording: "Recording", step: int, settings: "Settings") -> "list[Report]":
    """Return a report on each captured backward of a run's step.

    Raises:
        GradscopeError: None was.
    """
    from gradscope.analysis.captured_steps import captured_at, verdict_on
    from gradscope.analysis.report import Report
    from gradscope.rules.engine import judge

    captured_steps, verdict = captured_at(recording, step), judge(recording, settings)
    return [
        Report.from_recording(captured.recording, verdict_on(captured, verdict))
        for captured in captured_steps
    ]
