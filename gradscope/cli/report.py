"""`gradscope report`."""

import gc
import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gradscope.analysis.view import ViewOptions
from gradscope.cli import options
from gradscope.cli.console import ColorChoice, make_console
from gradscope.cli.options import with_groups
from gradscope.cli.output import (
    Destination,
    WantedOutput,
    check_destinations,
    outcome_of,
    set_verbosity,
    wanted_output,
    write_report,
    write_text,
)
from gradscope.cli.rank_recordings import loaded_jobs
from gradscope.cli.rule import explained
from gradscope.cli.running import judged_job, settings_of
from gradscope.config.formats import holds_several, is_of_ci
from gradscope.errors import GradscopeError
from gradscope.options.declaration import Argument, Option

if TYPE_CHECKING:
    from gradscope.analysis.report import Report
    from gradscope.recording.records import Recording
    from gradscope.report.explanation import ExplanationFormat
    from gradscope.rules.settings import Settings

RecordingArguments = Annotated[
    list[Path],
    Argument(
        metavar="RECORDING",
        help="Recordings written by --save, or a folder of them. Ranks of a job are one report.",
        show_default=False,
    ),
]


StepOption = Annotated[
    int | None,
    Option(
        "--step",
        min=0,
        metavar="N",
        help="Show every tensor of this step of a training run.",
        panel="What to show",
        show_default=False,
    ),
]
ExplainOption = Annotated[
    str | None,
    Option(
        "--explain",
        metavar="CODE",
        help="Show what a rule measured on the recording, as `gradscope rule CODE --why` does.",
        panel="What to show",
        show_default=False,
    ),
]


FollowOption = Annotated[
    bool,
    Option(
        "--follow",
        help="While another process writes the recording, show the training as run --live does. "
        "The report comes at its end, or at Ctrl-C.",
        panel="What to show",
    ),
]


@with_groups
def report(
    *,
    recordings: RecordingArguments,
    view: ViewOptions,
    rules: options.RuleOptions,
    step: StepOption = None,
    explain: ExplainOption = None,
    follow: FollowOption = False,
    output: options.ReportOutput,
) -> None:
    """Render saved recordings in any format, without running code."""
    set_verbosity(quiet=output.quiet, verbose=False)
    wanted = wanted_output(
        output.output_format,
        output.output_file,
        is_opened=output.open_page,
        subject=str(recordings[0]),
    )
    destination = check_destinations(wanted.file, None, force=False, inputs=recordings).report
    if explain is not None:
        is_file = destination is not None
        text = _explanation(explain, recordings, wanted, output.color, is_file=is_file)
        write_text(text, destination, sys.stdout)
        return
    settings = settings_of(rules)
    if follow:
        _follow(recordings, output.color, settings)
    reports = _judged(recordings, step, settings, wanted)
    _write(reports, wanted, destination, view, output)


def _judged(
    recordings: list[Path], step: int | None, settings: "Settings", wanted: WantedOutput
) -> "list[Report]":
    """Return a report on each recording, or on each captured backward of a step.

    Raises:
        GradscopeError: A recording cannot be read, or the output can hold only one report.
    """
    jobs = loaded_jobs(recordings)
    check_count(len(jobs), "recordings", wanted)
    # Garbage collections would visit the records, a million for a long run.
    gc.freeze()
    if step is None:
        return [judged_job(job.recordings, settings) for job in jobs]
    runs = [run for job in jobs for run in job.recordings]
    reports = [one for run in runs for one in step_reports(run, step, settings)]
    check_count(len(reports), "backward passes", wanted)
    return reports


def _write(
    reports: "list[Report]",
    wanted: WantedOutput,
    destination: Destination | None,
    view: ViewOptions,
    output: options.ReportOutput,
) -> None:
    """Write reports to a file, or to stdout."""
    # Deferred: it imports sqlite3, which --help does not need.
    from gradscope.report.render import finding_lines, render_ci, together

    findings = finding_lines(together(reports)) if destination is not None else ()
    if is_of_ci(wanted.form):
        text = render_ci(together(reports), wanted.form)
        write_text(text, destination, sys.stdout, findings=findings)
        return
    if wanted.form == "html":
        from gradscope.report.html.report_page import render_html

        outcome = outcome_of(reports[0]) if len(reports) == 1 else ""
        page = render_html(reports)
        write_text(page, destination, sys.stdout, outcome=outcome, findings=findings)
        wanted.open(destination)
        return
    for one in reports:
        write_report(
            one,
            wanted.form,
            view,
            destination=destination,
            stdout=sys.stdout,
            color=output.color,
            is_brief=output.quiet,
        )


def _follow(recordings: list[Path], color: ColorChoice, settings: "Settings") -> None:
    """Show the training of a recording until it ends.

    Raises:
        GradscopeError: It is not one recording, or cannot be shown.
    """
    from gradscope.cli.run.live import follow

    if len(recordings) > 1 or recordings[0].is_dir():
        raise GradscopeError("--follow takes one recording", help="name one file")
    follow(recordings[0], color, settings)


def _explanation(
    code: str, recordings: list[Path], wanted: WantedOutput, color: ColorChoice, *, is_file: bool
) -> str:
    """Return what a rule measured on a recording.

    Raises:
        GradscopeError: No single rule, recording or format is given.
    """
    from gradscope.rules.selection import rules_named

    found = rules_named(code)
    if len(found) > 1 or len(recordings) > 1:
        many = f"{len(recordings)} recordings" if len(found) == 1 else f"{len(found)} rules"
        raise GradscopeError(f"--explain takes one rule and one recording, not {many}")
    if wanted.form not in ("full", "json", "markdown"):
        raise GradscopeError(
            f"--explain has no format `{wanted.form}`", help="use full, json or markdown"
        )
    console = make_console(io.StringIO() if is_file else sys.stdout, color)
    form: ExplanationFormat = "text" if wanted.form == "full" else wanted.form
    return explained(found[0], recordings[0], form, console)


def check_count(count: int, things: str, wanted: WantedOutput) -> None:
    """Check that the output can hold this number of reports.

    Raises:
        GradscopeError: It can hold one, but there are more.
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
        GradscopeError: The step was not captured.
    """
    from gradscope.analysis.ranks.job_summary import job_summary
    from gradscope.analysis.report import Report
    from gradscope.analysis.training_run import captured_at, verdict_on
    from gradscope.rules.engine import judge

    captured_steps, verdict = captured_at(recording, step), judge(recording, settings)
    job = job_summary((recording,))
    return [
        replace(Report.from_recording(captured.recording, verdict_on(captured, verdict)), job=job)
        for captured in captured_steps
    ]
