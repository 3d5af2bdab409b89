"""The declaration of a rule's fix, and the function that makes it."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gradscope.frozen import dataclass
from gradscope.recording.finding import Edit, Finding, RelatedLocation, Safety
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext

# These modules import libcst, which takes long and is needed only to make a fix.
if TYPE_CHECKING:
    from gradscope.source_edits.source_file import SourceFile
    from gradscope.source_edits.source_files import SourceFiles


JUDGING_ONE_OPTIMIZER = ("GS708", "GS710", "GS720", "GS727", "GS728")
"""Codes of rules that do not judge a training in which several optimizers step."""

Line = Site | RelatedLocation


def own_line(finding: Finding) -> Line | None:
    """Return the line of a finding."""
    return finding.location


def related_line(finding: Finding) -> Line | None:
    """Return the first related line of a finding; None if it has none."""
    return finding.related[0] if finding.related else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FixRule:
    """Declares that a rule has a fix.

    Its function, a `FixFunction`, has the name of the rule. It is imported on demand,
    because it needs libcst.
    """

    safety: Safety
    module: str = "fixes"
    """Module with the function, relative to the package of the rule."""
    function: str = ""
    """Name of the function; empty for that of the rule."""
    line: Callable[[Finding], Line | None] = own_line
    """Returns the line that is edited. There is no fix if it is None, or no line of the user."""
    fixes_notes: bool = True
    """Whether it also fixes findings that are only notes."""
    removes_operation: bool = False
    """Whether the line of the finding may have no operation afterwards."""
    reveals: tuple[str, ...] = ()
    """Codes of rules that can judge the line only with the fix; their findings count as found."""
    settles: tuple[str, ...] = ()
    """Codes of rules that need not run any more with the fix, if fewer elements of the gradient are
    zero."""
    ends: tuple[str, ...] = ()
    """Codes of rules that may have nothing left to judge with the fix."""
    ends_shape: str = ""
    """Name of the evidence with a shape that no operation of the line may give any more."""
    keeps_parameters: bool = False
    """Whether the parameters of the finding must be there afterwards; others may be renamed."""
    leaves_note: bool = False
    """Whether a note of the rule may stay where there was an error or a warning."""
    is_search: bool = False
    """Whether all edits are tried, and the best is kept; otherwise the first that is verified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixContext:
    """A finding, and the file to edit."""

    finding: Finding
    context: RuleContext
    """The recording in which the rule found it."""
    files: "SourceFiles"
    source: "SourceFile"
    """The file of the line that is edited, as it ran."""
    site: Line
    """The line that is edited."""

    @property
    def line(self) -> int:
        """Return the number of the line that is edited."""
        return self.site.line

    @property
    def evidence(self) -> dict[str, float | str | bool | None]:
        """Return the numbers of the finding by name."""
        return dict(self.finding.evidence)

    @property
    def related(self) -> RelatedLocation | None:
        """Return the first related line of the finding."""
        return self.finding.related[0] if self.finding.related else None


Edits = tuple[Edit, ...]
"""Edits that are made together."""

FixFunction = Callable[[FixContext], Iterator[Edits]]
"""Yields the edits of each possible fix, the best first; nothing if the line is unclear."""
