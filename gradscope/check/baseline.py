"""Applies baselines: known findings do not count until they become worse."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from gradscope.check.baseline_file import (
    Entry,
    entry_of,
    read_entries,
    target_key,
    worsening,
    write_entries,
)
from gradscope.check.baseline_matching import Surroundings, moved, paired, similar
from gradscope.check.results import CheckResult, TargetResult, skip_reason_of
from gradscope.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The known findings."""

    entries: tuple[Entry, ...] = ()


def read_baseline(path: Path) -> Baseline:
    """Return the baseline in a file.

    Raises:
        GradscopeError: There is none, or it cannot be read.
    """
    return Baseline(entries=read_entries(path))


def write_baseline(
    path: Path, result: CheckResult, configured: Collection[str] | None = None
) -> Baseline:
    """Write the findings of a check, and keep the file's entries that it did not judge.

    Args:
        path: File of the baseline; it may be missing.
        result: Result of the check.
        configured: Names of all configured targets; None without a configuration.

    Raises:
        GradscopeError: The file is there and no baseline, or it cannot be written.
    """
    known = read_baseline(path) if path.exists() else Baseline()
    written = updated(known, result, configured)
    write_entries(path, written.entries)
    return written


def prune_baseline(
    path: Path, result: CheckResult, configured: Collection[str] | None = None
) -> Baseline:
    """Remove the entries that a check no longer finds from a file, and return them.

    What the check has found elsewhere, as a file was renamed, is written as it is there.

    Args:
        path: File of the baseline.
        result: Result of the check.
        configured: Names of all configured targets; None without a configuration.

    Raises:
        GradscopeError: The file is no baseline, or it cannot be written.
    """
    known = read_baseline(path)
    kept = pruned(known, result, configured)
    # A file that stays the same is not written: tools that watch it would see a change.
    if kept != known:
        write_entries(path, kept.entries)
    return Baseline(entries=tuple(_Comparison(result, known, configured).stale))


def applied(
    result: CheckResult,
    baseline: Baseline,
    tolerance: float,
    is_strict: bool,
    configured: Collection[str] | None = None,
) -> CheckResult:
    """Return the result with known findings marked and moved last, and with stale entries.

    Args:
        result: Result of a check.
        baseline: The known findings.
        tolerance: Factor by which a known finding may have become worse, at least 1.
        is_strict: Whether stale entries fail the check.
        configured: Names of all configured targets; None without a configuration.
    """
    compared = _Comparison(result, baseline, configured)
    stale = tuple(_entry_text(entry, similar(entry, compared.new)) for entry in compared.stale)
    return replace(
        result,
        targets=tuple(
            _marked(target, compared.known[position], tolerance)
            for position, target in enumerate(result.targets)
        ),
        stale=stale,
        stale_fails=is_strict and bool(stale),
    )


def updated(
    baseline: Baseline, result: CheckResult, configured: Collection[str] | None = None
) -> Baseline:
    """Return the baseline of the present findings, with the old entries that were not judged."""
    compared = _Comparison(result, baseline, configured)
    kept = [entry for entry in compared.unmatched if not _is_judged(entry, result)]
    return Baseline(entries=(*kept, *_found(result)))


def pruned(
    baseline: Baseline, result: CheckResult, configured: Collection[str] | None = None
) -> Baseline:
    """Return the baseline without entries that were judged but not found."""
    compared = _Comparison(result, baseline, configured)
    return Baseline(
        entries=tuple(
            compared.moved.get(position, entry)
            for position, entry in enumerate(baseline.entries)
            if position in compared.moved or entry not in compared.stale
        )
    )


class _Comparison:
    """Matches the findings of a check with the entries of a baseline.

    Args:
        result: Result of the check.
        baseline: The known findings.
        configured: Names of all configured targets; None without a configuration.
    """

    def __init__(
        self, result: CheckResult, baseline: Baseline, configured: Collection[str] | None
    ) -> None:
        self.known: list[dict[int, Entry]] = [
            {position: baseline.entries[entry] for position, entry in pairs}
            for pairs in (tuple(_pairs(target, baseline)) for target in result.targets)
        ]
        """Entries of the findings of each target, by the positions of the findings."""
        self.moved: dict[int, Entry] = {}
        """Entries that have moved, at their new locations, by position in the baseline."""
        matched = {entry for target in result.targets for _, entry in _pairs(target, baseline)}
        unmatched = [
            position for position in range(len(baseline.entries)) if position not in matched
        ]
        free = [
            (number, position)
            for number, target in enumerate(result.targets)
            for position in _eligible(target)
            if position not in self.known[number]
        ]
        new = [
            entry_of(result.targets[number].findings[position], result.targets[number])
            for number, position in free
        ]
        old = [baseline.entries[position] for position in unmatched]
        # Surroundings look for files on disk, which is needless if nothing can have moved.
        pairs = tuple(moved(old, new, Surroundings.of(result, configured))) if old and new else ()
        for entry, finding in pairs:
            number, position = free[finding]
            self.known[number][position] = old[entry]
            self.moved[unmatched[entry]] = _at(old[entry], new[finding])
        self.unmatched = [baseline.entries[p] for p in unmatched if p not in self.moved]
        """Entries that match nothing, in their order."""
        self.new = [
            one for position, one in enumerate(new) if position not in {f for _, f in pairs}
        ]
        """Findings that match nothing, as entries."""
        self.stale = [entry for entry in self.unmatched if _is_judged(entry, result)]
        """Entries that match nothing although their rules judged their targets."""


def _at(old: Entry, new: Entry) -> Entry:
    """Return an entry at the location of another."""
    return replace(
        old, target=new.target, fingerprint=new.fingerprint, file=new.file, function=new.function
    )


def _found(result: CheckResult) -> list[Entry]:
    """Return entries for all findings; of two recordings of a target, the worse finding counts."""
    found: list[Entry] = []
    for target in result.targets:
        known = dict(_pairs(target, Baseline(entries=tuple(found))))
        for position in _eligible(target):
            item = target.findings[position]
            entry = entry_of(item, target)
            if position not in known:
                found.append(entry)
            elif worsening(item.finding, found[known[position]], tolerance=1.0):
                found[known[position]] = entry
    return found


def _marked(target: TargetResult, known: Mapping[int, Entry], tolerance: float) -> TargetResult:
    marked = list(target.findings)
    for position, entry in known.items():
        worse = worsening(marked[position].finding, entry, tolerance)
        marked[position] = replace(marked[position], is_known=worse is None, worsened=worse)
    return replace(target, findings=tuple(sorted(marked, key=lambda item: item.is_known)))


def _eligible(target: TargetResult) -> list[int]:
    """Return the positions of the findings that may be known: those of judged runs."""
    blocked = [skip_reason_of(run) is not None for run in target.runs]
    return [position for position, item in enumerate(target.findings) if not blocked[item.run]]


def _pairs(target: TargetResult, baseline: Baseline) -> Iterator[tuple[int, int]]:
    """Yield the positions of findings that may be known, each with that of its entry."""
    key, positions = target_key(target), _eligible(target)
    entries = [position for position, entry in enumerate(baseline.entries) if entry.target == key]
    findings = [target.findings[position].finding for position in positions]
    for finding, entry in paired(findings, [baseline.entries[position] for position in entries]):
        yield positions[finding], entries[entry]


def _is_judged(entry: Entry, result: CheckResult) -> bool:
    """Return whether a check could have found the finding of an entry."""
    targets = [target for target in result.targets if target_key(target) == entry.target]
    return bool(targets) and all(_would_show(target, entry) for target in targets)


def _would_show(target: TargetResult, entry: Entry) -> bool:
    if target.failures or not target.runs:
        return False
    # A rule that could not judge one run may have missed the finding there.
    if any(entry.rule not in run.verdict.ran for run in target.runs):
        return False
    # A finding that another one explains still exists, but is not reported.
    explained = {one.rule for item in target.findings for one in item.finding.consequences}
    seeds = {run.recording.target.seed for run in target.runs}
    return entry.rule not in explained and (not entry.seeds or not seeds.isdisjoint(entry.seeds))


def _entry_text(entry: Entry, likely: Entry | None) -> str:
    """Return a line on an entry: `GS201 gradient-cut in model.py, Net.forward (target small)`.

    Args:
        entry: Entry that matches nothing.
        likely: Entry that it may have become.
    """
    now = "" if likely is None else _location(likely) or " without a line"
    became = f"; it may now be{now}" if now else ""
    return f"{entry.rule} {entry.name}{_location(entry)} (target {entry.target}){became}"


def _location(entry: Entry) -> str:
    where = ", ".join(filter(None, (entry.file, entry.function)))
    what = ", ".join(entry.subjects[:2])
    return f" in {where}" if where else f" of {what}" if what else ""
