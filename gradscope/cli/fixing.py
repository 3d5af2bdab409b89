"""Fixes findings of a target: runs the edited program apart, judges it, and writes the files."""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TextIO

from gradscope.analysis.report import Report
from gradscope.check.options import PlannedTarget
from gradscope.check.results import CheckResult, Failure, TargetResult
from gradscope.cli.checking import usual_limit
from gradscope.cli.console import ColorChoice, make_console
from gradscope.cli.errors import QUIET, show_note
from gradscope.cli.output import Destination, write_text
from gradscope.cli.processes.isolation import Job
from gradscope.cli.processes.side_by_side import PlannedJob, run_all
from gradscope.fixes.choosing import best_of, other_text, with_loss
from gradscope.fixes.options import FixOptions
from gradscope.fixes.proposing import Proposal, Proposals
from gradscope.fixes.verification import Result, numbers_of, result_of
from gradscope.fixes.writing import write_edited
from gradscope.recording.finding import Edit, Finding, Fix
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

    def run(self, proposals: Proposals, trials: Sequence[Sequence[Edit]]) -> list[Report | str]:
        """Return the reports of the target with edited files.

        Args:
            proposals: The files.
            trials: The edits of each run; runs are side by side.

        Returns:
            For each run its report, or why there is none, in words.
        """
        jobs = [self._job(proposals.edited(edits)) for edits in trials]
        seen = run_all(jobs, usual_limit([self.planned])) if jobs else []
        return [
            self._report(one, edits, proposals) for one, edits in zip(seen, trials, strict=True)
        ]

    def original(self, file: str) -> str:
        """Return the file that is written for an edited one."""
        return file

    def _job(self, overlay: Mapping[str, str]) -> PlannedJob:
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
        return PlannedJob(job=job, folder=self.planned.folder, timeout=self.planned.timeout)

    def _report(
        self, seen: Recording | Failure, edits: Sequence[Edit], proposals: Proposals
    ) -> Report | str:
        if isinstance(seen, Recording):
            return Report.from_recording(seen, judge(seen, self.settings))
        text = f"{seen.what}: {seen.cause}" if seen.cause else seen.what
        if seen.file is None or seen.line is None:
            return text
        return f"{text} at {proposals.shown(seen.file, seen.line, edits)}"


class Runner(Protocol):
    """Runs a program with edited files, and judges it."""

    def original(self, file: str) -> str:
        """Return the file that is written for an edited one."""
        ...

    def run(self, proposals: Proposals, trials: Sequence[Sequence[Edit]]) -> list[Report | str]:
        """Return for each trial the report of the edited program, or why there is none."""
        ...


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
        trial: Runner,
        options: FixOptions,
        findings: Sequence[Finding] | None = None,
    ) -> None:
        self._before, self._trial = report, trial
        self._proposals = Proposals(report.recording, parsed_selectors(options.fix_only or ()))
        found = list(self._proposals.of(report.findings if findings is None else findings))
        tried = [one for one in found if options.unsafe_fixes or one.safety == "safe"]
        self.hidden = len(found) - len(tried)
        """Number of unsafe fixes that were not asked for."""
        self._fixes: dict[int, _Tried] = {}
        self._try(tried)

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

    def _try(self, proposals: Sequence[Proposal]) -> None:
        """Run the program with the first edits of every fix, then the next ones where it is wrong.

        The first edits that are verified are kept; without any, the first ones.
        """
        for proposal in proposals:
            if proposal.is_search:
                self._fixes[id(proposal.finding)] = self._searched(proposal)
        stepwise = [one for one in proposals if not one.is_search]
        for number in range(max((len(one.candidates) for one in stepwise), default=0)):
            open_ones = [
                one
                for one in stepwise
                if number < len(one.candidates) and not self._is_verified(one)
            ]
            edits = [one.candidates[number] for one in open_ones]
            for proposal, after in zip(
                open_ones, self._trial.run(self._proposals, edits), strict=True
            ):
                tried = self._judged(proposal, proposal.candidates[number], after)
                if number == 0 or tried.fix.verified:
                    self._fixes[id(proposal.finding)] = tried

    def _searched(self, proposal: Proposal) -> "_Tried":
        """Return the best of all candidates; its verdict tells the results of the others."""
        reports = self._trial.run(self._proposals, proposal.candidates)
        tried = [
            self._judged(proposal, edits, after)
            for edits, after in zip(proposal.candidates, reports, strict=True)
        ]
        results = [(bool(one.fix.verified), one.after) for one in tried]
        best = tried[best_of(results)]
        others = [
            (self._proposals.added(one.fix.edits), one.fix.verdict, result)
            for one, result in zip(tried, results, strict=True)
            if one is not best
        ]
        verdict = "; ".join([with_loss(best.fix.verdict, best.after), *map(other_text, others)])
        return _Tried(fix=replace(best.fix, verdict=verdict), after=best.after)

    def _is_verified(self, proposal: Proposal) -> bool:
        tried = self._fixes.get(id(proposal.finding))
        return tried is not None and bool(tried.fix.verified)

    def _judged(self, proposal: Proposal, edits: tuple[Edit, ...], after: Report | str) -> "_Tried":
        result = _result(proposal.finding, self._before, after, edits)
        fix = replace(
            self._proposals.fix(proposal, edits),
            verified=result.is_verified,
            verdict=result.text,
            before=numbers_of(self._before),
            after=None if isinstance(after, str) else numbers_of(after),
        )
        return _Tried(fix=fix, after=after)

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
        texts = self._proposals.edited(self._edits(chosen))
        write_edited(texts, self._proposals.files, self._trial.original)
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
            (seen,) = self._trial.run(self._proposals, [edits])
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


def unverified(report: Report, options: FixOptions) -> tuple[Report, int]:
    """Return a report with fixes of which none is run, and the number of hidden fixes."""
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
    return replace(report, findings=findings), len(found) - len(fixes)


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
