"""Matches findings with entries of a baseline, also after files and targets were renamed.

The same line may be wrong in two models. So a known finding has only moved if the file that it was
in is gone, or the target that showed it, and if exactly one new finding can be it.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path

from gradscope.check.baseline_file import Entry, target_key
from gradscope.check.results import CheckResult
from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding
from gradscope.rules.fingerprint import portable_path, subjects_of

_TOLD_BY_PARAMETERS = ("GS105", "GS106", "GS2")
"""Prefixes of codes of rules whose parameters identify a mistake. Another unused head is another
mistake, even on the same line of the loss; so is another layer of dead units whose line has the
same text. For other rules, the affected parameters differ from run to run.
"""


def paired(findings: Sequence[Finding], entries: Sequence[Entry]) -> Iterator[tuple[int, int]]:
    """Yield the positions of findings and entries with the same cause, each of them once.

    They share rule and fingerprint. Where several findings do, as on the line of the loss, those
    that concern the same things belong together, then those that concern some of the same.
    """
    free: dict[tuple[str, str], list[int]] = {}
    for position, entry in enumerate(entries):
        free.setdefault((entry.rule, entry.fingerprint), []).append(position)
    waiting = list(range(len(findings)))
    for is_same in (_concern_the_same, _overlap, _may_be_one):
        for position in tuple(waiting):
            finding = findings[position]
            known = free.get((finding.rule, finding.fingerprint), [])
            found = next((entry for entry in known if is_same(finding, entries[entry])), None)
            if found is not None:
                known.remove(found)
                waiting.remove(position)
                yield position, found


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
    """Return whether their lines alone identify them."""
    is_told_apart = finding.rule.startswith(_TOLD_BY_PARAMETERS)
    return not (is_told_apart and subjects_of(finding) and entry.subjects)


_ALIKE = 0.6
"""Share of equal text from which a line counts as the successor of another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The targets and files that exist, to recognize those that are gone."""

    targets: frozenset[str]
    """Keys of the targets that were checked."""
    files: frozenset[str]
    """Files with a line observed in the check, as entries name them."""
    repositories: tuple[Path, ...]
    """Repositories of the checked targets on this machine."""
    configured: frozenset[str] | None
    """Names of all targets in the configuration; None without a configuration."""

    @classmethod
    def of(cls, result: CheckResult, configured: Collection[str] | None) -> "Surroundings":
        """Return the targets and files of a check, its configuration and this machine."""
        recordings = [run.recording for target in result.targets for run in target.runs]
        seen = {
            (site.file, recording.target.repository)
            for recording in recordings
            for site in recording.sites
        }
        folders = {recording.target.repository for recording in recordings}
        return cls(
            targets=frozenset(map(target_key, result.targets)),
            files=frozenset(portable_path(file, repository) for file, repository in seen),
            repositories=tuple(path for path in map(Path, sorted(folders)) if path.is_dir()),
            configured=None if configured is None else frozenset(configured),
        )

    def lost_file(self, entry: Entry) -> bool:
        """Return whether the file of an entry is gone."""
        return bool(entry.file) and entry.file not in self.files and self._lacks(entry.file)

    def lost_target(self, entry: Entry) -> bool:
        """Return whether the target of an entry is gone.

        That another check is of other targets does not tell.
        """
        if entry.target in self.targets:
            return False
        file, suffix, _ = entry.target.partition(".py")
        if suffix:
            return self._lacks(file + suffix)
        is_known = self.configured is None or entry.target in self.configured
        return not is_known and self._lacks(entry.target) and self._lacks(f"{entry.target}.py")

    def _lacks(self, file: str) -> bool:
        # Without a repository on this machine, a missing file says nothing.
        return bool(self.repositories) and not any(
            (folder / file).exists() for folder in self.repositories
        )


def moved(
    known: Sequence[Entry], found: Sequence[Entry], surroundings: Surroundings
) -> Iterator[tuple[int, int]]:
    """Yield the positions of entries and of the findings that they moved to.

    Args:
        known: Entries that match no finding.
        found: Findings that match no entry, as entries.
        surroundings: The targets and files that exist.
    """
    pairs = [
        (old, new)
        for old, entry in enumerate(known)
        for new, other in enumerate(found)
        if entry.rule == other.rule and _has_moved(entry, other, surroundings)
    ]
    of_entry = Counter(old for old, _ in pairs)
    of_finding = Counter(new for _, new in pairs)
    return (pair for pair in pairs if of_entry[pair[0]] == of_finding[pair[1]] == 1)


def _has_moved(old: Entry, new: Entry, surroundings: Surroundings) -> bool:
    is_same = (old.function, old.code, old.subjects) == (new.function, new.code, new.subjects)
    is_same &= (old.target, old.file) != (new.target, new.file)
    # Without a line, the model and the cause are in the fingerprint.
    if not is_same or not (old.code or old.fingerprint == new.fingerprint):
        return False
    return (old.target == new.target or surroundings.lost_target(old)) and (
        old.file == new.file or surroundings.lost_file(old)
    )


def similar(entry: Entry, found: Sequence[Entry]) -> Entry | None:
    """Return the finding that an unmatched entry may have become; None if none is similar.

    Args:
        entry: Entry of a checked target.
        found: Findings that match no entry, as entries.
    """
    ratios = [
        (_likeness(entry, other), other)
        for other in found
        if (other.rule, other.target) == (entry.rule, entry.target)
    ]
    ratio, best = max(ratios, key=lambda pair: pair[0], default=(0.0, None))
    return best if ratio >= _ALIKE else None


def _likeness(entry: Entry, other: Entry) -> float:
    """Return the similarity of two findings of a rule, from 0 to 1."""
    if entry.subjects and entry.subjects == other.subjects:
        return 1.0
    return SequenceMatcher(None, entry.code, other.code).ratio() if entry.code else 0.0
