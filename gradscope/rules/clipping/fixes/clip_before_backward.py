"""Clips behind the backward."""

from collections.abc import Iterator

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statement_order import call_named, moved_after, statement_on


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that moves the clip behind the backward of the same block."""
    source = files.at(finding.location)
    if source is None or finding.location is None or not finding.related:
        return
    backward = finding.related[0]
    if backward.file != source.path:
        return
    clipping, passing = (statement_on(source, one.line) for one in (finding.location, backward))
    if clipping is None or passing is None:
        return
    if call_named(source, passing, ["scale"]) is not None:  # its gradients are scaled
        return
    changes = moved_after(source, clipping, passing)
    if changes and source.start(clipping) < source.start(passing):
        yield source.edits(changes)
