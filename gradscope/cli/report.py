"""`gradscope report`."""

import gc
import sys
from pathlib import Path
from typing import Annotated

import typer

from gradscope.cli import options
from gradscope.cli.option_groups import with_groups
from gradscope.cli.output import check_destinations, set_verbosity, write_report, write_text
from gradscope.cli.rules import judged, settings_of
from gradscope.errors import GradscopeError
from gradscope.report.formats import OutputFormat, is_of_ci

RecordingArguments = Annotated[
    list[Path],
    typer.Argument(metavar="RECORDING", help="Files that --save has written.", show_default=False),
]


@with_groups
def report(
    recordings: RecordingArguments,
    view: options.ViewGroup,
    rules: options.RulesGroup,
    output_format: options.OutputFormatOption = "full",
    output_file: options.ReportFileOption = "-",
    quiet: options.QuietOption = False,
    color: options.ColorOption = "auto",
) -> None:
    """Render recordings again, in any format, without running anything."""
    set_verbosity(quiet=quiet, verbose=False)
    destination = check_destinations(output_file, None, force=False, inputs=recordings).report
    check_count(recordings, output_format, output_file)
    # sqlite3 is loaded for those who read a recording, not for --help.
    from gradscope.recording.store import load_recording
    from gradscope.report.render import render_ci, together

    settings = settings_of(rules)
    loaded = [load_recording(path) for path in recordings]
    # What was loaded stays to the end; a long run is a million records for the collector to visit.
    gc.freeze()
    reports = [judged(recording, settings) for recording in loaded]
    if is_of_ci(output_format):
        write_text(render_ci(together(reports), output_format), destination, sys.stdout)
        return
    for one in reports:
        write_report(
            one,
            output_format,
            view.chosen(),
            destination=destination,
            stdout=sys.stdout,
            color=color,
        )


def check_count(recordings: list[Path], output_format: OutputFormat, output_file: str) -> None:
    """Make sure that the output can hold as many reports as there are recordings.

    Raises:
        GradscopeError: It holds one, and there are more.
    """
    if len(recordings) == 1 or is_of_ci(output_format):
        return
    if output_file != "-":
        raise GradscopeError(
            f"`{output_file}` can hold one report, and there are {len(recordings)} recordings",
            help="give one recording, or leave --output-file out",
        )
    if output_format == "json":
        raise GradscopeError(
            f"`json` holds one report, and there are {len(recordings)} recordings",
            help="give one recording, or --output-format jsonl",
        )
