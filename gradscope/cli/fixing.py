"""Fixes findings of a target: runs the edited program apart, judges it, and writes the files."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TextIO

from gradscope.analysis.report import Report
from gradscope.check.options import PlannedTarget
from gradscope.check.results import CheckResult, Failure, TargetResult
from gradscope.cli.checking import usual_limit
from gradscope.cli.console import ColorChoice, make_console
from gradscope.cli.errors import QUIET, show_note
from gradscope.cli.output import Destination, write_text
from gradscope.cli.processes.isolation import Job
from gradscope.cli.processes.side_by_side import PlannedJob, run_all
from gradscope.fixes.fixing import Fixing
from gradscope.fixes.options import FixOptions
from gradscope.fixes.proposing import Proposals
from gradscope.frozen import dataclass
from gradscope.recording.finding import Edit, Finding
from gradscope.recording.records import Recording
from gradscope.report.findings import ShownFinding, closing_text, render_fixes
from gradscope.rules.engine import judge
from gradscope.rules.selection import parsed_selectors
from gradscope.rules.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A way to run a target again, and to judge it."""

    planned: PlannedTarget
    settings: Settings
    command: str
    """Command line as typed, for the record."""

    def run(self, proposals: Proposals, trials: Sequence[Sequence[Edit]]) -> list[Report | str]:
        """Return the reports of the target with edited files.

        Args:
            proposals: The files.
            trials: The edits of each run; runs are side by side.

        Returns:
            For each run its report, or why there is none, in words.
        """
        jobs = [
            self._job(number, proposals.edited(edits)) for number, edits in enumerate(trials, 1)
        ]
        seen = run_all(jobs, usual_limit([self.planned])) if jobs else []
        return [
            self._report(one, edits, proposals) for one, edits in zip(seen, trials, strict=True)
        ]

    def original(self, file: str) -> str:
        """Return the file that is written for an edited one."""
        return file

    def _job(self, number: int, overlay: Mapping[str, str]) -> PlannedJob:
        job = Job(
            name=self.planned.name,
            spec=self.planned.spec,
            options=self.planned.options,
            trial=self.planned.trial,
            command=self.command,
            level=QUIET,
            is_silent=True,
            overlay=overlay,
        )
        return PlannedJob(
            job=job, folder=self.planned.folder, timeout=self.planned.timeout, edit=number
        )

    def _report(
        self, seen: Recording | Failure, edits: Sequence[Edit], proposals: Proposals
    ) -> Report | str:
        if isinstance(seen, Recording):
            return Report.from_recording(seen, judge(seen, self.settings))
        text = f"{seen.what}: {seen.cause}" if seen.cause else seen.what
        if seen.file is None or seen.line is None:
            return text
        return f"{text} at {proposals.shown(seen.file, seen.line, edits)}"


def unverified(report: Report, options: FixOptions) -> tuple[Report, tuple[Finding, ...]]:
    """Return a report with fixes of which none is run, and the findings with a hidden fix."""
    proposals = Proposals(report.recording, parsed_selectors(options.fix_only or ()))
    found = list(proposals.of(report.findings))
    fixes = {
        id(one.finding): proposals.fix(one, one.candidates[0])
        for one in found
        if options.unsafe_fixes or one.safety == "safe"
    }
    findings = tuple(
        replace(one, fix=fixes[id(one)]) if id(one) in fixes else one for one in report.findings
    )
    hidden = tuple(one.finding for one in found if id(one.finding) not in fixes)
    return replace(report, findings=findings), hidden


def fixed(report: Report, trial: Trial, options: FixOptions) -> tuple[Report, tuple[Finding, ...]]:
    """Return a report with fixes, or that of the fixed program, and the findings with a hidden fix.

    Raises:
        GradscopeError: With --fix, a file changed since it was read, or cannot be written.
    """
    if not options.is_wanted:
        return report, ()
    fixing = Fixing(report, trial, options)
    if options.fix:
        after = fixing.write(show_note)
        _note_hidden(fixing.hidden)
        return after or report, fixing.hidden
    return fixing.report, fixing.hidden


def fixed_check(
    result: CheckResult,
    planned: Sequence[PlannedTarget],
    settings: Settings,
    options: FixOptions,
    run: Callable[[], CheckResult],
) -> tuple[CheckResult, tuple[Finding, ...]]:
    """Return a check with fixes, and the findings with a hidden fix.

    Args:
        result: The result of the check.
        planned: Its targets.
        settings: Settings of the rules.
        options: Which fixes are tried, and whether they are written.
        run: Runs the check again; called if something was written.

    Raises:
        GradscopeError: With --fix, a file changed since it was read, or cannot be written.
    """
    by_name = {one.name: one for one in planned}
    fixing = {
        (target.name, position): Fixing(
            Report.from_recording(one.recording, one.verdict),
            Trial(
                planned=_seeded(by_name[target.name], one.recording.target.seed),
                settings=settings,
                command=result.command,
            ),
            options,
            [item.finding for item in target.findings if item.run == position],
        )
        for target in result.targets
        for position, one in enumerate(target.runs)
    }
    hidden = tuple(finding for one in fixing.values() for finding in one.hidden)
    if options.fix:
        is_written = [one.write(show_note) is not None for one in fixing.values()]
        _note_hidden(hidden)
        return (run() if any(is_written) else result), hidden
    targets = tuple(_with_fixes(target, fixing) for target in result.targets)
    return replace(result, targets=targets), hidden


def _note_hidden(hidden: Sequence[Finding]) -> None:
    """Tell how many fixes were not tried because they are unsafe."""
    if hidden:
        number = len(hidden)
        show_note(f"{number} more {'fix' if number == 1 else 'fixes'} with --unsafe-fixes")


def _seeded(planned: PlannedTarget, seed: int | None) -> PlannedTarget:
    return replace(planned, options=replace(planned.options, seed=seed))


def _with_fixes(target: TargetResult, fixing: Mapping[tuple[str, int], Fixing]) -> TargetResult:
    found = tuple(
        replace(item, finding=fixing[target.name, item.run].with_fix(item.finding))
        for item in target.findings
    )
    return replace(target, findings=found)


def write_fixes(
    findings: Sequence[ShownFinding],
    hidden: Sequence[Finding],
    destination: Destination | None,
    stdout: TextIO,
    color: ColorChoice,
) -> None:
    """Write the diffs of findings to a file, or to stdout."""
    console = make_console(stdout if destination is None else io.StringIO(), color)
    text = render_fixes(findings, hidden, console)
    write_text(text, destination, stdout, outcome=closing_text(findings, hidden))
