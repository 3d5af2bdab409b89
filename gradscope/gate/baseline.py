"""Findings that are known, and do not count until they become worse.

What is never hidden is a run that could not be judged: its findings stay, and are never written.
Findings of a limit that the user set (`gradient-norm-limit`) can be known as all others: they
count again when the norm goes farther beyond the limit than the tolerance allows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gradscope.gate.baseline_entry import Entry, entry_of, target_key, worsening
from gradscope.gate.baseline_file import read_entries, write_entries
from gradscope.gate.baseline_matching import paired
from gradscope.gate.merging import obstacle_of
from gradscope.gate.results import CheckResult, TargetResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The findings that are known."""

    entries: tuple[Entry, ...] = ()


def read_baseline(path: Path) -> Baseline:
    """Return the baseline that a file holds.

    Raises:
        GradscopeError: There is none, or it cannot be read.
    """
    return Baseline(entries=read_entries(path))


def write_baseline(path: Path, result: CheckResult) -> Baseline:
    """Write what a check found, and keep what the file knows of what this check did not judge.

    Raises:
        GradscopeError: The file is there and no baseline, or it cannot be written.
    """
    known = read_baseline(path) if path.exists() else Baseline()
    written = updated(known, result)
    write_entries(path, written.entries)
    return written


def prune_baseline(path: Path, result: CheckResult) -> Baseline:
    """Remove from a file what a check has not found any more, and return what was removed.

    Raises:
        GradscopeError: The file is no baseline, or it cannot be written.
    """
    known = read_baseline(path)
    kept = pruned(known, result)
    if kept != known:
        write_entries(path, kept.entries)
    return Baseline(entries=tuple(one for one in known.entries if one not in kept.entries))


def applied(
    result: CheckResult, baseline: Baseline, tolerance: float, is_strict: bool
) -> CheckResult:
    """Return the result with known findings marked, last in their target, and stale entries told.

    Args:
        result: Of a check.
        baseline: What was known before.
        tolerance: How many times worse a known finding may have become; 1 and above.
        is_strict: Whether stale entries fail the check.
    """
    stale = tuple(map(_words, _stale(result, baseline)))
    return replace(
        result,
        targets=tuple(_marked(target, baseline, tolerance) for target in result.targets),
        stale=stale,
        stale_fails=is_strict and bool(stale),
    )


def updated(baseline: Baseline, result: CheckResult) -> Baseline:
    """Return the baseline that knows what was found now, and of the rest what it knew before."""
    again = _matched(result, baseline)
    kept = [
        entry
        for place, entry in enumerate(baseline.entries)
        if place not in again and not _is_judged(entry, result)
    ]
    return Baseline(entries=(*kept, *_found(result)))


def pruned(baseline: Baseline, result: CheckResult) -> Baseline:
    """Return the baseline without what the check has judged and not found any more."""
    stale = _stale(result, baseline)
    return Baseline(entries=tuple(one for one in baseline.entries if one not in stale))


def _found(result: CheckResult) -> list[Entry]:
    """Return entries for all findings; of two recordings of one target the worse of each two."""
    found: list[Entry] = []
    for target in result.targets:
        known = dict(_pairs(target, Baseline(entries=tuple(found))))
        for place in _eligible(target):
            item = target.findings[place]
            entry = entry_of(item, target)
            if place not in known:
                found.append(entry)
            elif worsening(item.finding, found[known[place]], tolerance=1.0):
                found[known[place]] = entry
    return found


def _marked(target: TargetResult, baseline: Baseline, tolerance: float) -> TargetResult:
    marked = list(target.findings)
    for place, known in _pairs(target, baseline):
        worse = worsening(marked[place].finding, baseline.entries[known], tolerance)
        marked[place] = replace(marked[place], is_known=worse is None, worsened=worse)
    return replace(target, findings=tuple(sorted(marked, key=lambda item: item.is_known)))


def _eligible(target: TargetResult) -> list[int]:
    """Return the places of the findings that may be known: those of runs that could be judged."""
    blocked = [obstacle_of(run) is not None for run in target.runs]
    return [place for place, item in enumerate(target.findings) if not blocked[item.run]]


def _pairs(target: TargetResult, baseline: Baseline) -> Iterator[tuple[int, int]]:
    """Yield the places of findings that may be known, each with that of its entry."""
    key, places = target_key(target), _eligible(target)
    entries = [place for place, entry in enumerate(baseline.entries) if entry.target == key]
    findings = [target.findings[place].finding for place in places]
    for finding, entry in paired(findings, [baseline.entries[place] for place in entries]):
        yield places[finding], entries[entry]


def _matched(result: CheckResult, baseline: Baseline) -> set[int]:
    """Return the places of the entries that something was found for."""
    return {entry for target in result.targets for _, entry in _pairs(target, baseline)}


def _stale(result: CheckResult, baseline: Baseline) -> list[Entry]:
    """Return the entries whose targets were judged by their rules, and that nothing matches."""
    again = _matched(result, baseline)
    return [
        entry
        for place, entry in enumerate(baseline.entries)
        if place not in again and _is_judged(entry, result)
    ]


def _is_judged(entry: Entry, result: CheckResult) -> bool:
    """Return whether a check would have found what an entry knows, if it were still there."""
    targets = [target for target in result.targets if target_key(target) == entry.target]
    return bool(targets) and all(_would_show(target, entry) for target in targets)


def _would_show(target: TargetResult, entry: Entry) -> bool:
    if target.failures or not target.runs:
        return False
    if any(entry.rule not in run.verdict.ran for run in target.runs):
        return False
    # What another finding explains is still there, though no finding of its own.
    explained = {one.rule for item in target.findings for one in item.finding.consequences}
    seeds = {run.recording.target.seed for run in target.runs}
    return entry.rule not in explained and (not entry.seeds or not seeds.isdisjoint(entry.seeds))


def _words(entry: Entry) -> str:
    """Return a line on an entry: `GS201 gradient-cut in model.py, Net.forward (target small)`."""
    where = ", ".join(filter(None, (entry.file, entry.function)))
    what = ", ".join(entry.subjects[:2])
    place = f" in {where}" if where else f" of {what}" if what else ""
    return f"{entry.rule} {entry.name}{place} (target {entry.target})"
