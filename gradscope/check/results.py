"""Results of a check: the runs of every target, their findings and failures."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gradscope.check.options import Policy
from gradscope.recording.finding import Finding, Severity, Verdict
from gradscope.recording.records import Recording

Outcome = Literal["passed", "failed", "unjudged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A run that could not be judged, with the texts of its `GradscopeError`."""

    what: str
    cause: str | None = None
    help: str | None = None
    seed: int | None = None
    """Seed of the run; None if it concerns the target as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A recording, judged by the rules."""

    recording: Recording
    verdict: Verdict
    ranks: tuple[Recording, ...] = ()
    """Recordings of all ranks, if a job was judged; `recording` is the first of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFinding:
    """A finding of one or several runs of a target, with one cause."""

    finding: Finding
    """The finding as in its worst run."""
    run: int
    """Index of the target's worst run."""
    seeds: tuple[int | None, ...]
    """Seeds of the runs with this finding, in order."""
    is_known: bool = False
    """Whether the baseline hides the finding: it is reported apart and does not count."""
    worsened: str | None = None
    """Change beyond the baseline's tolerance, such as `decades 5.2 instead of 2.1`; None without.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetResult:
    """A target with its runs and their findings."""

    name: str
    runs: tuple[Run, ...] = ()
    findings: tuple[CheckedFinding, ...] = ()
    """Findings, the worst first, known ones last."""
    failures: tuple[Failure, ...] = ()
    """Failures of the runs that could not be judged."""

    def counted(self) -> Iterator[CheckedFinding]:
        """Yield the findings that the baseline does not hide."""
        return (item for item in self.findings if not item.is_known)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Result of one command, for one target or several."""

    version: str
    """Version of gradscope."""
    command: str
    """Command line as typed."""
    targets: tuple[TargetResult, ...]
    policy: Policy | None = None
    """Policy of the check; None for `inspect` and `report`."""
    stale: tuple[str, ...] = ()
    """Entries of the baseline that match nothing any more, in words."""
    stale_fails: bool = False
    unmatched: tuple[str, ...] = ()
    """Patterns of limits that match no module of any target."""

    def counts(self) -> dict[Severity, int]:
        """Return the number of findings of each level that count."""
        found: dict[Severity, int] = {"error": 0, "warning": 0, "note": 0}
        for target in self.targets:
            for item in target.counted():
                found[item.finding.severity] += 1
        return found
