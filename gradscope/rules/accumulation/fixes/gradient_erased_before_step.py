"""Zeroes gradients before the backward instead of after it."""

from collections.abc import Iterator

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.moved_statements import moved_before
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statements import statement_with


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that moves `zero_grad()` before the backward, or the block around it."""
    source = files.at(finding.location)
    is_emptied = "steps_without_gradient" in dict(finding.evidence)
    if source is None or finding.location is None or not is_emptied or not finding.related:
        return
    zeroing = statement_with(source, finding.location, "zero_grad")
    passing = statement_with(source, finding.related[0], "backward")
    if zeroing is not None and passing is not None:
        yield source.edits(moved_before(source, zeroing, passing))
