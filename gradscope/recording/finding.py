"""What a rule found: one cause, with its evidence, its place, and one thing to try."""

from dataclasses import dataclass

from gradscope.recording.records import Site
from gradscope.recording.severity import SEVERITIES as SEVERITIES
from gradscope.recording.severity import Severity as Severity
from gradscope.recording.severity import at_least as at_least


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
