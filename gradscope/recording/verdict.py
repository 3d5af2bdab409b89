"""What the rules make of a recording."""

from dataclasses import dataclass

from gradscope.recording.finding import Finding

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
