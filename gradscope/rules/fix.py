"""The declaration of a rule's fix, and the function that makes it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from gradscope.frozen import dataclass
from gradscope.recording.finding import Edit, Finding, Safety
from gradscope.rules.context import RuleContext

if TYPE_CHECKING:
    from gradscope.source_edits.source_files import SourceFiles


JUDGING_ONE_OPTIMIZER = ("GS708", "GS710", "GS720", "GS727", "GS728")
"""Codes of rules that do not judge a training in which several optimizers step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixRule:
    """Declares that a rule has a fix.

    Its function `fix`, a `FixFunction`, is in a module of `fixes`, beside the rule. It is imported
    on demand, because it needs libcst.
    """

    safety: Safety
    module: str = ""
    """Name of the module; empty for that of the rule."""
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


class FixFunction(Protocol):
    """Finds the edits that fix a finding."""

    def __call__(
        self, finding: Finding, context: RuleContext, files: "SourceFiles"
    ) -> Iterator[tuple[Edit, ...]]:
        """Yield the edits of each possible fix, the best first; nothing if the place is unclear."""
        ...
