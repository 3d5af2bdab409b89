"""Steps the scheduler behind the optimizer."""

from collections.abc import Iterator

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statement_order import call_named, moved_after, statement_on


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that moves the scheduler's step behind the optimizer's of the same block."""
    source = files.at(finding.location)
    if source is None or finding.location is None or not finding.related:
        return
    step = finding.related[0]
    if step.file != source.path:
        return
    scheduling, stepping = (statement_on(source, one.line) for one in (finding.location, step))
    if scheduling is None or stepping is None or call_named(source, scheduling, ["step"]) is None:
        return
    changes = moved_after(source, scheduling, stepping)
    if changes and source.start(scheduling) < source.start(stepping):
        yield source.edits(changes)
