"""A finding, its severity, and the verdict of all rules on a recording."""

from typing import Literal

from gradscope.frozen import dataclass
from gradscope.recording.records import Site

Safety = Literal["safe", "unsafe"]
"""`unsafe` fixes change what the program is meant to compute."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Position:
    """A position in a text file."""

    line: int
    """Counted from 1."""
    column: int
    """Counted from 1, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The replacement of a range of a file."""

    file: str
    """Absolute path."""
    start: Position
    end: Position
    """First position behind the range; equal to the start if text is only inserted."""
    replacement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The step before or after a fix."""

    loss: float | None
    grad_norm: float | None
    """Global norm of the gradient; None without a gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """The edits that fix a finding, and how the repaired program ran."""

    safety: Safety
    edits: tuple[Edit, ...]
    diff: str
    """Unified diff of all edits, with paths relative to the working directory."""
    verified: bool | None = None
    """Whether the repaired program ran without the finding; None if it was not run."""
    verdict: str = ""
    """Result of that run, in words."""
    before: Numbers | None = None
    after: Numbers | None = None
    """The numbers of the repaired program; None if it was not run, or did not end."""


Severity = Literal["error", "warning", "note"]
"""The levels of SARIF."""

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""All levels, the worst first."""


def at_least(level: Severity) -> tuple[Severity, ...]:
    """Return the levels that are at least as bad as one, the worst first."""
    return SEVERITIES[: SEVERITIES.index(level) + 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedLocation:
    """Another line that contributes to the cause."""

    file: str
    line: int
    message: str
    """What happens on the line."""
    source: str = ""
    """Text of the line without indentation; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequence:
    """A finding of another rule that this finding explains."""

    rule: str
    name: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause, however many parameters or steps it explains."""

    rule: str
    """Code of the rule, as `GS201`."""
    name: str
    """Name of the rule, as `gradient-cut`."""
    severity: Severity
    message: str
    location: Site | None
    """Line that causes it; None if no line is known."""
    related: tuple[RelatedLocation, ...] = ()
    parameters: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    step: int | None = None
    """First step that shows it."""
    count: int = 1
    """Number of parameters or steps it explains, as counted by the rule."""
    evidence: tuple[tuple[str, float | str | bool | None], ...] = ()
    """Measured numbers, and the limits that they exceed, by name."""
    remedy: str
    caused_by: tuple[str, ...] = ()
    """Rules whose findings on the same line or a common parameter explain this one, in addition to
    those of the rule in general."""
    explains: tuple[str, ...] = ()
    """Rules whose findings are consequences of this one, in addition to those of its rule in
    general."""
    consequences: tuple[Consequence, ...] = ()
    ranks: tuple[int, ...] = ()
    """Ranks of a distributed job that show it; empty for a single process."""
    fingerprint: str
    """Identifier that is the same in every run: it contains no number. Findings on one line may
    share it."""
    fix: Fix | None = None
    """Edit that removes it, if fixes were requested and there is one."""


IGNORED, NOT_SELECTED = "ignored", "not selected"
"""Why a rule did not run that the settings exclude."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRule:
    """A rule that did not run, and why."""

    rule: str
    reason: str

    @property
    def is_left_out(self) -> bool:
        """Whether the user excluded it."""
        return self.reason in (IGNORED, NOT_SELECTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of all rules on a recording."""

    findings: tuple[Finding, ...] = ()
    ran: tuple[str, ...] = ()
    """Codes of the rules that could judge."""
    skipped: tuple[SkippedRule, ...] = ()
    ignored: int = 0
    """Number of findings in modules for which their rule is ignored."""


UNJUDGED = Verdict()
"""No rule has run."""


def rank_of(finding: Finding) -> tuple[int, int, str]:
    """Return what findings are sorted by: the worst first, then those about most parameters."""
    return (SEVERITIES.index(finding.severity), -len(finding.parameters), finding.rule)
