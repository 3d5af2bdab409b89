"""Fixes findings of a target: runs the edited program apart, judges it, and writes the files."""

import io
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TextIO

from gradscope.analysis.report import Report
from gradscope.check.options import PlannedTarget
from gradscope.check.results import CheckResult, TargetResult
from gradscope.cli.console import ColorChoice, make_console
from gradscope.cli.errors import QUIET, VERBOSITY, show_note, write_line
from gradscope.cli.isolation import Job, run_apart
from gradscope.cli.output import Destination, write_text
from gradscope.fixes.options import FixOptions
from gradscope.fixes.proposing import Proposal, Proposals
from gradscope.fixes.verification import Result, numbers_of, result_of
from gradscope.fixes.writing import write_edited
from gradscope.recording.finding import Finding
from gradscope.recording.fix import Edit, Fix
from gradscope.recording.records import Recording
from gradscope.report.fixes import ShownFinding, closing_text, render_fixes
from gradscope.rules.engine import judge
from gradscope.rules.selection import parsed_selectors
from gradscope.rules.settings import Settings
from gradscope.source_edits.text_edits import overlap


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A way to run a target again, and to judge it."""

    planned: PlannedTarget
    settings: Settings
    command: str
    """Command line as typed, for the record."""

    def run(self, proposals: Proposals, edits: Iterable[Edit]) -> Report | str:
        """Return the report of the target with edited files, or why there is none, in words."""
        job = Job(
            name=self.planned.name,
            spec=self.planned.spec,
            options=self.planned.options,
            trial=self.planned.trial,
            command=self.command,
            level=QUIET,
            overlay=proposals.edited(edits),
        )
        seen = run_apart(job, self.planned.folder, self.planned.timeout, is_silent=True)
        if isinstance(seen, Recording):
            return Report.from_recording(seen, judge(seen, self.settings))
        return f"{seen.what}: {seen.cause}" if seen.cause else seen.what


class Fixing:
    """The fixes of a report's findings, each tried in a process of its own.

    Args:
        report: The program as it is.
        trial: How to run it again.
        options: Which fixes are tried.
        findings: The findings to fix; None for all.
    """

    def __init__(
        self,
        report: Report,
        trial: Trial,
        options: FixOptions,
        findings: Sequence[Finding] | None = None,
    ) -> None:
        self._before, self._trial = report, trial
        self._proposals = Proposals(report.recording, parsed_selectors(options.fix_only or ()))
        found = list(self._proposals.of(report.findings if findings is None else findings))
        tried = [one for one in found if options.unsafe_fixes or one.safety == "safe"]
        self.hidden = len(found) - len(tried)
        """Number of unsafe fixes that were not asked for."""
        self._fixes = {id(one.finding): self._tried(one) for one in tried}

    @property
    def report(self) -> Report:
        """The report, whose findings have their fixes."""
        findings = tuple(map(self.with_fix, self._before.findings))
        rules = replace(self._before.rules, findings=findings)
        return replace(self._before, findings=findings, rules=rules)

    def with_fix(self, finding: Finding) -> Finding:
        """Return a finding with its fix, if there is one."""
        tried = self._fixes.get(id(finding))
        return finding if tried is None else replace(finding, fix=tried.fix)

    def _tried(self, proposal: Proposal) -> "_Tried":
        """Return the first fix that is verified; without one, the first fix and its result."""
        tried: list[_Tried] = []
        count = len(proposal.candidates)
        for number, edits in enumerate(proposal.candidates, 1):
            which = f", {number} of {count}" if count > 1 else ""
            _tell(f"trying the fix of {proposal.finding.rule}{which}")
            after = self._trial.run(self._proposals, edits)
            result = _result(proposal.finding, self._before, after, edits)
            fix = replace(
                self._proposals.fix(proposal, edits),
                verified=result.is_verified,
                verdict=result.text,
                before=numbers_of(self._before),
                after=None if isinstance(after, str) else numbers_of(after),
            )
            tried.append(_Tried(fix=fix, after=after))
            if result.is_verified:
                return tried[-1]
        return tried[0]

    def write(self) -> Report | None:
        """Write all verified fixes that hold together; return the report of the fixed program.

        None if nothing is written.

        Raises:
            GradscopeError: A file changed since it was read, or cannot be written.
        """
        chosen: list[Finding] = []
        after: Report | None = None
        left_out = 0
        for finding in self._before.findings:
            tried = self._fixes.get(id(finding))
            if tried is not None and tried.fix.verified:
                together = [*chosen, finding]
                seen = self._together(together)
                if seen is None:
                    left_out += 1
                else:
                    chosen, after = together, seen
        write_edited(self._proposals.edited(self._edits(chosen)), self._proposals.files)
        for one in chosen:
            show_note(f"fixed {one.rule} {one.name}: {self._fixes[id(one)].fix.verdict}")
        if left_out:
            show_note(f"not written beside the others: {left_out}; run the command again")
        return after

    def _together(self, findings: list[Finding]) -> Report | None:
        """Return the report of the program with several fixes; None if they do not fit."""
        edits = self._edits(findings)
        if overlap(edits):
            return None
        if len(findings) == 1:
            seen = self._fixes[id(findings[0])].after
        else:
            _tell("trying the fixes together")
            seen = self._trial.run(self._proposals, edits)
        if isinstance(seen, str):
            return None
        results = (result_of(one, self._before, seen, edits) for one in findings)
        return seen if all(one.is_verified for one in results) else None

    def _edits(self, findings: Iterable[Finding]) -> tuple[Edit, ...]:
        edits = [edit for one in findings for edit in self._fixes[id(one)].fix.edits]
        return tuple(dict.fromkeys(edits))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """A fix, and the report of the program with it."""

    fix: Fix
    after: Report | str
    """Why there is no report, in words, if there is none."""


def _result(finding: Finding, before: Report, after: Report | str, edits: Sequence[Edit]) -> Result:
    if isinstance(after, str):
        return Result(is_verified=False, text=f"the edited program cannot be judged: {after}")
    return result_of(finding, before, after, edits)


def _tell(text: str) -> None:
    """Print progress, on a terminal."""
    if sys.stderr.isatty() and VERBOSITY.level > QUIET:
        write_line(text)


def fixed(report: Report, trial: Trial, options: FixOptions) -> tuple[Report, int]:
    """Return a report with fixes, or that of the fixed program, and the number of hidden fixes.

    Raises:
        GradscopeError: With --fix, a file changed since it was read, or cannot be written.
    """
    if not options.is_wanted:
        return report, 0
    fixing = Fixing(report, trial, options)
    if options.fix:
        return fixing.write() or report, fixing.hidden
    return fixing.report, fixing.hidden


def fixed_check(
    result: CheckResult,
    planned: Sequence[PlannedTarget],
    settings: Settings,
    options: FixOptions,
    run: Callable[[], CheckResult],
) -> tuple[CheckResult, int]:
    """Return a check with fixes, and the number of hidden fixes.

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
    hidden = sum(one.hidden for one in fixing.values())
    if options.fix:
        is_written = [one.write() is not None for one in fixing.values()]
        return (run() if any(is_written) else result), hidden
    targets = tuple(_with_fixes(target, fixing) for target in result.targets)
    return replace(result, targets=targets), hidden


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
    hidden: int,
    destination: Destination | None,
    stdout: TextIO,
    color: ColorChoice,
) -> None:
    """Write the diffs of findings to a file, or to stdout."""
    console = make_console(stdout if destination is None else io.StringIO(), color)
    text = render_fixes(findings, hidden, console)
    write_text(text, destination, stdout, outcome=closing_text(findings, hidden))
