"""Writes the further outputs of a check: other formats, recordings, a step summary."""

import io
import os
import re
import secrets
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

from gradscope.cli.console import make_console
from gradscope.cli.errors import show_note
from gradscope.cli.output import Destination, check_destinations, write_text
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.options.declaration import Option

if TYPE_CHECKING:
    from gradscope.check.options import PlannedTarget
    from gradscope.check.results import CheckResult
    from gradscope.config.formats import OutputFormat

Positions = Mapping[tuple[str, int | None], Path]
"""Files of recordings, by the target's name and the seed."""

AlsoOption = Annotated[
    list[str] | None,
    Option(
        "--also",
        metavar="FORMAT=FILE",
        help="Also write the report in this format, such as sarif=gradscope.sarif. Repeatable.",
        panel="Output",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherReport:
    """A further report: its format and its file."""

    output_format: "OutputFormat"
    destination: Destination


def check_further_reports(
    wanted: Sequence[str], main: Destination | None, inputs: Iterable[Path]
) -> tuple[FurtherReport, ...]:
    """Return the reports of `--also`, before anything slow runs.

    Args:
        wanted: Values of `--also`, each `FORMAT=FILE`.
        main: Destination of the main report; None for stdout.
        inputs: Files that the check reads, which are never overwritten.

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
    destination = check_destinations(file, None, force=False, report_option="--also").report
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


def recording_locations(
    save: Path, planned: "Sequence[PlannedTarget]", inputs: Collection[Path], *, force: bool
) -> Positions:
    """Return the file of each run: the named file, or one per run in the named folder.

    Args:
        save: Value of `--save`.
        planned: The targets that will run.
        inputs: Files that the check reads, which are never overwritten.
        force: Whether other files may be overwritten.

    Raises:
        GradscopeError: A file cannot be written, or exists and `force` is not set.
    """
    runs = [(target.name, seed) for target in planned for seed in target.every_seed]
    if not runs:
        raise GradscopeError("nothing to --save: the recordings are already saved")
    if len(runs) == 1 and not save.is_dir():
        found = check_destinations("-", save, force=force, inputs=inputs).recording
        assert found is not None
        return {runs[0]: found.path}
    if save.exists() and not save.is_dir():
        raise GradscopeError(
            f"`{save}` can hold one recording, but there are {len(runs)} runs",
            help="name a folder; it is created if needed",
        )
    folder = save.resolve()
    positions: dict[tuple[str, int | None], Path] = {}
    for name, seed in runs:
        positions[name, seed] = _free(folder, name, seed, {*positions.values()})
    # What follows checks files, whose folder has to exist.
    _make(folder)
    for position in positions.values():
        check_destinations("-", position, force=True, inputs=inputs)
    taken = next((position for position in positions.values() if position.exists()), None)
    if taken is not None and not force:
        raise GradscopeError(
            f"'{save / taken.name}' already exists", help="add --force to overwrite it"
        )
    return positions


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GradscopeError(
            f"cannot create the folder '{folder}' for --save", cause=error.strerror
        ) from None


def _free(folder: Path, name: str, seed: int, taken: set[Path]) -> Path:
    """Return a file for a run that is not taken by another run."""
    # A dot in front hides a file, and a dash makes it look like an option.
    stem = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "target"
    position, number = folder / f"{stem}-seed-{seed}.gradscope", 1
    while position in taken:
        number += 1
        position = folder / f"{stem}-{number}-seed-{seed}.gradscope"
    return position


def save_runs(result: "CheckResult", positions: Positions, *, force: bool) -> None:
    """Save the recordings of a check; a run that failed has none."""
    from gradscope.recording.store import save_recording

    saved = []
    for target in result.targets:
        for run in target.runs:
            position = positions.get((target.name, run.recording.target.seed))
            if position is not None:
                save_recording(run.recording, position, force=force)
                saved.append(position)
    if len(saved) == 1:
        show_note(f"wrote {saved[0]}")
    elif saved:
        show_note(f"wrote {len(saved)} recordings into {saved[0].parent}")


@contextmanager
def commands_off(*, is_wanted: bool) -> Iterator[None]:
    """Stop GitHub's runner from executing commands that user code prints, on stderr too."""
    if not is_wanted:
        yield
        return
    # The runner obeys again only after this token, which user code cannot guess.
    token = secrets.token_hex(16)
    # The runner reads both streams, and stdout holds nothing but the report.
    _write_line(f"::stop-commands::{token}")
    try:
        yield
    finally:
        # User code, such as a progress bar, may have left a line without an end.
        _write_line(f"\n::{token}::")


def _write_line(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def add_step_summary(result: "CheckResult") -> None:
    """Add the report to the step summary, if the runner has one."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    from gradscope.report.ci.github import step_summary

    try:
        with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123 - the runner's own file
            file.write(step_summary(result) + "\n")
    except OSError as error:
        show_note(f"no step summary: cannot write {path!r}: {error.strerror}")
