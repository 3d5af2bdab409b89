"""What the rules make of a recording."""

from dataclasses import dataclass

from gradscope.recording.finding import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRule:
    """A rule that did not run, and why."""

    rule: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the rules make of a recording."""

    findings: tuple[Finding, ...] = ()
    ran: tuple[str, ...] = ()
    """Codes of the rules that could judge."""
    skipped: tuple[SkippedRule, ...] = ()


UNJUDGED = Verdict()
"""No rule has run."""
