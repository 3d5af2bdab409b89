"""`gradscope fix`."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gradscope.analysis.view import ViewOptions
from gradscope.cli import options
from gradscope.cli.errors import show_note
from gradscope.cli.options import with_groups
from gradscope.cli.output import check_destinations, set_verbosity, wanted_output, write_report
from gradscope.cli.running import judged_job, settings_of
from gradscope.errors import GradscopeError
from gradscope.fixes.options import PANEL, FixOnlyOption, UnsafeFixesOption
from gradscope.frozen import dataclass
from gradscope.options.declaration import Argument, Option

if TYPE_CHECKING:
    from gradscope.analysis.report import Report

RecordingArgument = Annotated[
    Path,
    Argument(
        metavar="RECORDING",
        help="Recording of a training, written by gradscope run.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FixChoice:
    """Which fixes are shown, and whether the script runs."""

    verify: Annotated[
        int | None,
        Option(
            min=2,
            metavar="N",
            help="Run the first N optimizer steps of the script and of the edited script, in a "
            "copy of its folder.",
            panel=PANEL,
        ),
    ] = None
    fix: Annotated[
        bool,
        Option(
            help="With --verify, write the safe edits whose result is verified to the files.",
            panel=PANEL,
        ),
    ] = False
    yes: Annotated[
        bool,
        Option(
            "--yes",
            help="With --verify, let the script write outside the copy and open connections.",
            panel=PANEL,
        ),
    ] = False
    unsafe_fixes: UnsafeFixesOption = False
    fix_only: FixOnlyOption = None


@with_groups
def fix(
    *,
    recording: RecordingArgument,
    choice: FixChoice,
    rules: options.RuleOptions,
    output: options.ReportOutput,
) -> None:
    """Show edits that fix the findings of a recorded training, as a diff.

    With --verify, the script runs; otherwise nothing runs. Only --fix writes.
    """
    set_verbosity(quiet=output.quiet, verbose=False)
    for name, given in (("yes", choice.yes), ("fix", choice.fix)):
        if given and choice.verify is None:
            raise GradscopeError(f"--{name} needs --verify", help="add --verify 50")
    from gradscope.fixes.options import INSTALL, NEEDED, FixOptions, can_edit

    fixes = FixOptions(diff=True, unsafe_fixes=choice.unsafe_fixes, fix_only=choice.fix_only)
    fixes.check()
    if not can_edit():
        raise GradscopeError(f"fix {NEEDED}", help=INSTALL)
    from gradscope.cli.rank_recordings import loaded_jobs

    wanted = wanted_output(
        output.output_format,
        output.output_file,
        is_opened=output.open_page,
        subject=str(recording),
        default="full",
    )
    destination = check_destinations(wanted.file, None, force=False, inputs=[recording]).report
    (job, *others) = loaded_jobs([recording])
    if others:
        raise GradscopeError(f"{str(recording)!r} holds several trainings", help="name one file")
    from gradscope.cli.fixing import unverified, write_fixes  # libcst is slow to import
    from gradscope.fixes.fixing import Fixing

    settings = settings_of(rules)
    report = judged_job(job.recordings, settings)
    if choice.verify is None:
        report, hidden = unverified(report, fixes)
        _note_verifying(report, recording)
    else:
        from gradscope.cli.processes.copied_run import CopiedRun

        with CopiedRun(report, settings, choice.verify, is_free=choice.yes) as run:
            fixing = Fixing(run.before, run, fixes)
            report, hidden = fixing.report, fixing.hidden
            if choice.fix:
                fixing.write(show_note)
    if wanted.form == "full":
        shown = [(one, report.target.root) for one in report.findings]
        write_fixes(shown, hidden, destination, sys.stdout, output.color)
    else:
        write_report(
            report, wanted.form, ViewOptions(), destination=destination, stdout=sys.stdout,
            color=output.color, is_brief=output.quiet,
        )  # fmt: skip
    wanted.open(destination)


def _note_verifying(report: "Report", recording: Path) -> None:
    """Tell how to verify the fixes, if there are any."""
    if any(one.fix is not None for one in report.findings):
        command = f"gradscope fix {shlex.quote(str(recording))} --verify 50"
        show_note(f"{command} runs the script with and without the edits")
