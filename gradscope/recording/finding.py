"""A finding, its severity, and the verdict of all rules on a recording."""

from dataclasses import dataclass
from typing import Literal

from gradscope.recording.records import Site

Severity = Literal["error", "warning", "note"]
"""SARIF's levels."""

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""The worst first."""


def at_least(level: Severity) -> tuple[Severity, ...]:
    """Return the levels that are as bad as one or worse, the worst first."""
    return SEVERITIES[: SEVERITIES.index(level) + 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedLocation:
    """Another line that takes part in the cause."""

    file: str
    line: int
    message: str
    """What happens there."""
    source: str = ""
    """The line's text without indentation; empty where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequence:
    """What another rule found, and this finding explains."""

    rule: str
    name: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause, however many parameters or steps it explains."""

    rule: str
    """The rule's code, as `GS201`."""
    name: str
    """The rule's name, as `gradient-cut`."""
    severity: Severity
    message: str
    location: Site | None
    """The line that causes it; None where no line could be told."""
    related: tuple[RelatedLocation, ...] = ()
    parameters: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    step: int | None = None
    """The first step that shows it."""
    count: int = 1
    """How many parameters or steps it explains, by what the rule counts."""
    evidence: tuple[tuple[str, float | str | bool | None], ...] = ()
    """The measured numbers, and the limits they crossed, by name."""
    remedy: str
    caused_by: tuple[str, ...] = ()
    """Rules whose findings on the same line, or about one of the same parameters, explain this one;
    beside what rules explain in general."""
    explains: tuple[str, ...] = ()
    """Rules whose findings are consequences of this one, beside those of its rule in general."""
    consequences: tuple[Consequence, ...] = ()
    fingerprint: str
    """Stays the same from run to run: holds no number. Findings of one line may share it."""


IGNORED, NOT_SELECTED = "ignored", "not selected"
"""Why a rule did not run that the settings leave out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRule:
    """A rule that did not run, and why."""

    rule: str
    reason: str

    @property
    def is_left_out(self) -> bool:
        """Whether the user chose so."""
        return self.reason in (IGNORED, NOT_SELECTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the rules make of a recording."""

    findings: tuple[Finding, ...] = ()
    ran: tuple[str, ...] = ()
    """Codes of the rules that could judge."""
    skipped: tuple[SkippedRule, ...] = ()
    ignored: int = 0
    """How many findings lie in modules where their rule is ignored."""


UNJUDGED = Verdict()
"""No rule has run."""
