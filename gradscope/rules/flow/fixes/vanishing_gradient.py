"""Tries what may keep the gradient level."""

from collections.abc import Iterator

from gradscope.recording.finding import Finding
from gradscope.recording.fix import Edit
from gradscope.rules.context import RuleContext
from gradscope.rules.flow.fixes.level_gradient import candidates
from gradscope.source_edits.source_files import SourceFiles


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edits of the initialisation, the activation or a normalisation."""
    del context
    yield from candidates(finding, files)
