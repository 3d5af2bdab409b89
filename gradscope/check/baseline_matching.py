"""Which finding is which entry of a baseline."""

from collections.abc import Iterator, Sequence

from gradscope.check.baseline_entry import Entry
from gradscope.recording.finding import Finding
from gradscope.rules.fingerprint import subjects_of

_TOLD_BY_PARAMETERS = ("GS105", "GS106", "GS2")
"""Beginnings of codes. Another head that is not used is another mistake, though on the same line of
the loss, and another layer of dead units, though its line reads the same. Of other rules the
parameters are what the mistake has reached, which differs from run to run."""


def paired(findings: Sequence[Finding], entries: Sequence[Entry]) -> Iterator[tuple[int, int]]:
    """Yield the places of findings and entries that are the same cause, each of them once.

    They share rule and fingerprint. Where several findings do, as on the line of the loss, those
    that concern the same things belong together, then those that concern some of the same.
    """
    free: dict[tuple[str, str], list[int]] = {}
    for place, entry in enumerate(entries):
        free.setdefault((entry.rule, entry.fingerprint), []).append(place)
    waiting = list(range(len(findings)))
    for is_same in (_concern_the_same, _overlap, _may_be_one):
        for place in tuple(waiting):
            finding = findings[place]
            known = free.get((finding.rule, finding.fingerprint), [])
            found = next((entry for entry in known if is_same(finding, entries[entry])), None)
            if found is not None:
                known.remove(found)
                waiting.remove(place)
                yield place, found


def _concern_the_same(finding: Finding, entry: Entry) -> bool:
    return subjects_of(finding) == entry.subjects


def _overlap(finding: Finding, entry: Entry) -> bool:
    return any(
        _is_part(a, b) or _is_part(b, a) for a in subjects_of(finding) for b in entry.subjects
    )


def _is_part(name: str, other: str) -> bool:
    """Return whether a name is another, or one of a module around it, or lacks a wrapper's name."""
    return other == name or other.startswith(f"{name}.") or other.endswith(f".{name}")


def _may_be_one(finding: Finding, entry: Entry) -> bool:
    """Return whether the line alone tells that they are one."""
    is_told_apart = finding.rule.startswith(_TOLD_BY_PARAMETERS)
    return not (is_told_apart and subjects_of(finding) and entry.subjects)
