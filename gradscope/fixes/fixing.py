"""Tries the fixes of a report's findings, and writes those that hold."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from typing import Protocol

from gradscope.analysis.report import Report
from gradscope.analysis.view import shown_site
from gradscope.errors import GradscopeError
from gradscope.files import written_whole
from gradscope.fixes.options import FixOptions
from gradscope.fixes.proposing import Proposal, Proposals
from gradscope.fixes.verification import Result, numbers_of, result_of
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.finding import Edit, Finding, Fix
from gradscope.rules.selection import parsed_selectors
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.text_edits import overlap


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
        self.hidden = tuple(one.finding for one in found if one not in tried)
        """Findings with an unsafe fix that was not asked for."""
        # By identity of the finding, which the report keeps alive.
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
        # Each trial is a process: those of one round run side by side.
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

    def write(self, tell: Callable[[str], None]) -> Report | None:
        """Write all verified fixes that hold together; return the report of the fixed program.

        None if nothing is written.

        Args:
            tell: Takes each line that says what is written, and what is not.

        Raises:
            GradscopeError: A file changed since it was read, or cannot be written.
        """
        chosen: list[Finding] = []
        after: Report | None = None
        left_out = 0
        for finding in self._before.findings:
            tried = self._fixes.get(id(finding))
            if tried is not None and tried.fix.verified:
                # Fixes that hold alone may not hold together: each is tried beside those chosen so
                # far.
                together = [*chosen, finding]
                seen = self._together(together)
                if seen is None:
                    left_out += 1
                else:
                    chosen, after = together, seen
        texts = self._proposals.edited(self._edits(chosen))
        write_edited(texts, self._proposals.files, self._trial.original)
        for one in chosen:
            where = shown_site(one.location, self._before.target.root)
            at = f" at {where}" if where else ""
            tell(f"fixed {one.rule} {one.name}{at}: {self._fixes[id(one)].fix.verdict}")
        if left_out:
            tell(f"not written beside the others: {left_out}; run the command again")
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
        # Two findings may need the same edit.
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


_UNEVEN = ("GS101", "GS102")

Tried = tuple[bool, Report | str]
"""Whether edits are verified, and the report of the program with them."""


def best_of(tried: Sequence[Tried]) -> int:
    """Return the position of the verified edits whose program reaches the lowest loss.

    A program whose gradient grows or shrinks, if only enough for a note, comes after the others.
    The first one without any that is verified.
    """
    positions = [at for at, (is_verified, _) in enumerate(tried) if is_verified]
    return min(positions, key=lambda at: _rank(tried[at][1]), default=0)


def _rank(after: Report | str) -> tuple[int, float]:
    findings = () if isinstance(after, str) else after.findings
    return sum(one.rule in _UNEVEN for one in findings), last_loss(after)


def last_loss(after: Report | str) -> float:
    """Return the loss after the last probe step, or that of the last step of a training."""
    if isinstance(after, str):
        return inf
    steps = [probe.loss for probe in after.probes if probe.loss is not None]
    loss = steps[-1] if steps else after.summary.loss
    return loss if loss is not None and isfinite(loss) else inf


def with_loss(verdict: str, after: Report | str) -> str:
    """Return a verdict with the loss that decides."""
    if isinstance(after, str) or after.summary.loss is None or not after.probes:
        return verdict
    return (
        f"{verdict}, loss {short(after.summary.loss)} -> {short(last_loss(after))} in "
        f"{len(after.probes)} steps"
    )


def other_text(other: tuple[str, str, Tried]) -> str:
    """Return the result of edits that were not chosen."""
    added, verdict, (is_verified, after) = other
    text = f"loss {short(last_loss(after))}" if is_verified else verdict.partition(": ")[0]
    return f"tried `{added}`: {text}"


def write_edited(
    texts: Mapping[str, str],
    files: SourceFiles,
    original: Callable[[str], str] = lambda file: file,
) -> None:
    """Write the edited texts of files, in their encoding and with their line breaks.

    Args:
        texts: Texts by path.
        files: The files as they were read.
        original: Returns the file to write for an edited one, which may be a copy.

    Raises:
        GradscopeError: A file changed since it was read, or cannot be written. Files that changed
            are noticed before anything is written.
    """
    for file in texts:
        if not is_current(files, file, original(file)):
            raise GradscopeError(
                f"{original(file)!r} changed since it was read; nothing is written",
                help="run the command again",
            )
    for file, text in texts.items():
        read = files.read(file)
        assert read is not None
        try:
            with written_whole(Path(original(file))) as path:
                path.write_bytes(text.encode(read.encoding))
        except OSError as error:
            raise GradscopeError(f"cannot write {original(file)!r}", cause=error.strerror) from None


def is_current(files: SourceFiles, file: str, on_disk: str) -> bool:
    """Return whether a file on disk is as one that was read."""
    read = files.read(file)
    try:
        return read is not None and Path(on_disk).read_bytes() == read.content
    except OSError:
        return False
