"""Zeroes gradients before the backward instead of after it."""

from collections.abc import Iterator

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statement_order import call_named, moved_before, statement_on


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that moves `zero_grad()` before the backward of the same block."""
    source = files.at(finding.location)
    is_emptied = "steps_without_gradient" in dict(finding.evidence)
    if source is None or finding.location is None or not is_emptied or not finding.related:
        return
    backward = finding.related[0]
    if backward.file != source.path:
        return
    zeroing, passing = (statement_on(source, one.line) for one in (finding.location, backward))
    if zeroing is None or passing is None or call_named(source, zeroing, ["zero_grad"]) is None:
        return
    changes = moved_before(source, zeroing, passing)
    if changes and source.start(passing) < source.start(zeroing):
        yield source.edits(changes)
