"""Reports of a check beside its main one: several formats of one run of the models."""

import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from gradscope.cli.console import make_console
from gradscope.cli.output import Destination, check_destinations, write_text
from gradscope.errors import GradscopeError

if TYPE_CHECKING:
    from gradscope.check.results import CheckResult
    from gradscope.config.formats import OutputFormat

AlsoOption = Annotated[
    list[str] | None,
    typer.Option(
        "--also",
        metavar="FORMAT=FILE",
        help="Also write the report in this format, such as sarif=gradscope.sarif. Repeatable.",
        rich_help_panel="Output",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherReport:
    """A format, and the file that gets it."""

    output_format: "OutputFormat"
    destination: Destination


def check_further_reports(
    wanted: Sequence[str], main: Destination | None, inputs: Iterable[Path]
) -> tuple[FurtherReport, ...]:
    """Return what `--also` asks for, before anything slow is run.

    Args:
        wanted: Each as `FORMAT=FILE`.
        main: Where the main report goes; None is stdout.
        inputs: What the check reads, which is never overwritten.

    Raises:
        GradscopeError: A format is unknown, or a file cannot be written or has two reports.
    """
    taken = set() if main is None else {main.path}
    read = tuple(inputs)
    reports = []
    for text in wanted:
        report = _further_report(text, read)
        if report.destination.path in taken:
            raise GradscopeError(
                f"two reports would be written to {report.destination.text!r}",
                help="give each its own file",
            )
        taken.add(report.destination.path)
        reports.append(report)
    return tuple(reports)


def _further_report(text: str, inputs: Iterable[Path]) -> FurtherReport:
    from gradscope.config.formats import CIFormat, ReportFormat

    name, _, file = text.partition("=")
    formats = {one: one for one in (*get_args(ReportFormat), *get_args(CIFormat))}
    if name not in formats:
        raise GradscopeError(
            f"--also {text!r}: unknown format {name!r}",
            help=f"write it as FORMAT=FILE with one of {', '.join(formats)}",
        )
    if file in ("", "-"):
        raise GradscopeError(
            f"--also {text!r} does not name a file", help=f"such as --also {name}=gradscope.{name}"
        )
    destination = check_destinations(file, None, force=False).report
    assert destination is not None
    if destination.path in {path.resolve() for path in inputs}:
        raise GradscopeError(
            f"--also {text!r} would overwrite what the check reads", help="name another file"
        )
    return FurtherReport(output_format=formats[name], destination=destination)


def write_further_reports(result: "CheckResult", reports: Iterable[FurtherReport]) -> None:
    """Write each report to its file, without colour.

    Raises:
        GradscopeError: A file cannot be written.
    """
    from gradscope.report.render import render_check

    for report in reports:
        console = make_console(io.StringIO(), "never")
        write_text(
            render_check(result, report.output_format, console), report.destination, sys.stdout
        )
