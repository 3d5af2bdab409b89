"""Clips before the step."""

from collections.abc import Iterator

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statement_order import call_named, moved_before, statement_on


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that moves the clip before the step of the same block."""
    source = files.at(finding.location)
    if source is None or finding.location is None or not finding.related:
        return
    step = finding.related[0]
    if step.file != source.path:
        return
    clipping, stepping = (statement_on(source, one.line) for one in (finding.location, step))
    if clipping is None or stepping is None:
        return
    call = call_named(source, stepping, ["step"])
    if call is None or call.args:  # the gradients of a scaler's step are scaled before it
        return
    changes = moved_before(source, clipping, stepping)
    if changes and source.start(stepping) < source.start(clipping):
        yield source.edits(changes)
