"""Findings of all sides: new, gone, and common ones."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from gradscope.comparison.side import Side
from gradscope.frozen import dataclass
from gradscope.recording.finding import SEVERITIES, Finding, rank_of
from gradscope.rules.fingerprint import subjects, unique_fingerprints

Standing = Literal["came", "worse", "went", "milder", "stayed"]
"""`worse` and `milder`: both have the finding, at different levels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFinding:
    """One cause, in the sides that show it."""

    findings: tuple[Finding | None, ...]
    """The finding in each side; None where it is absent."""

    def standing(self, position: int) -> Standing | None:
        """Return the change of a finding in a side; None if neither that nor the base has it."""
        base, other = self.findings[0], self.findings[position]
        if base is None or other is None:
            return None if base is other else "came" if base is None else "went"
        levels = [SEVERITIES.index(finding.severity) for finding in (base, other)]
        return (
            "stayed" if levels[0] == levels[1] else "worse" if levels[1] < levels[0] else "milder"
        )

    @property
    def first(self) -> tuple[int, Finding]:
        """The first side that shows it, and how it does."""
        return next((at, one) for at, one in enumerate(self.findings) if one is not None)


Names = Mapping[str, str]
"""Maps the name of a side's parameter to its name in the base."""


def compared_findings(sides: Sequence[Side], names: Sequence[Names]) -> tuple[ComparedFinding, ...]:
    """Return the findings of all sides, equal causes as one, the worst first.

    They are one by their fingerprints. A function that was moved to another file, or rewritten,
    gives a cause another fingerprint: of what is left, findings of a rule are one that are about
    the same parameters, about the same line of code, or about some of the same parameters.

    Args:
        sides: The base first.
        names: Of each side, the base's first.
    """
    groups: list[dict[int, _Known]] = []
    for position, side in enumerate(sides):
        found = side.report.findings
        waiting = [
            _Known.of(finding, fingerprint, names[position])
            for fingerprint, finding in zip(unique_fingerprints(found), found, strict=True)
        ]
        # The surest sign comes first: a vague one must not take the partner of a finding that has a
        # certain one.
        for is_same in (_share_fingerprint, _concern_the_same, _share_code, _overlap):
            waiting = list(_without_found(waiting, groups, position, is_same))
        groups += [{position: known} for known in waiting]
    compared = (_compared(group, len(sides)) for group in groups)
    return tuple(sorted(compared, key=lambda one: rank_of(one.first[1])))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A finding, and the keys by which it is recognized."""

    finding: Finding
    fingerprint: str
    parameters: frozenset[str]
    """Parameters, by their names in the base."""
    subjects: tuple[str, ...]

    @classmethod
    def of(cls, finding: Finding, fingerprint: str, names: Names) -> "_Known":
        concerned = frozenset(names.get(name, name) for name in finding.parameters)
        return cls(
            finding=finding,
            fingerprint=fingerprint,
            parameters=concerned,
            subjects=subjects(concerned or finding.modules),
        )


def _without_found(
    waiting: Iterable[_Known],
    groups: Sequence[dict[int, _Known]],
    position: int,
    is_same: Callable[[_Known, _Known], bool],
) -> Iterable[_Known]:
    """Add findings of a side to their causes, and yield the others."""
    for known in waiting:
        group = next(
            (
                group
                for group in groups
                if position not in group and is_same(known, next(iter(group.values())))
            ),
            None,
        )
        if group is None:
            yield known
        else:
            group[position] = known


def _share_fingerprint(one: _Known, other: _Known) -> bool:
    return one.finding.rule == other.finding.rule and one.fingerprint == other.fingerprint


def _concern_the_same(one: _Known, other: _Known) -> bool:
    return one.finding.rule == other.finding.rule and (
        one.parameters == other.parameters and one.subjects == other.subjects
    )


def _share_code(one: _Known, other: _Known) -> bool:
    ours, theirs = one.finding.location, other.finding.location
    if one.finding.rule != other.finding.rule or ours is None or theirs is None:
        return False
    return bool(ours.source) and ours.source == theirs.source


def _overlap(one: _Known, other: _Known) -> bool:
    return one.finding.rule == other.finding.rule and bool(one.parameters & other.parameters)


def _compared(group: Mapping[int, _Known], sides: int) -> ComparedFinding:
    return ComparedFinding(
        findings=tuple(
            group[position].finding if position in group else None for position in range(sides)
        )
    )
