"""Clips behind the backward."""

from collections.abc import Iterator

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.moved_statements import moved_after
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statements import call_named, clip_statement, statement_with


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that moves the clip behind the backward, or the block around it."""
    source = files.at(finding.location)
    if source is None or finding.location is None or not finding.related:
        return
    clipping = clip_statement(source, finding.location)
    passing = statement_with(source, finding.related[0], "backward")
    if clipping is None or passing is None:
        return
    if call_named(source, passing, ["scale"]) is None:  # otherwise its gradients are scaled
        yield source.edits(moved_after(source, clipping, passing))
