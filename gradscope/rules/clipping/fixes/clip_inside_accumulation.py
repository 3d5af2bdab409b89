"""Clips once, before the step."""

from collections.abc import Iterator

from gradscope.analysis.clipping.clips import Clips
from gradscope.recording.finding import Finding
from gradscope.recording.fix import Edit
from gradscope.rules.context import RuleContext
from gradscope.source_edits.source_file import only
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statement_order import call_named, moved_into, statement_on


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that moves the clip before the only step that uses its gradients."""
    source = files.at(finding.location)
    if source is None or finding.location is None:
        return
    steps = {
        context.site(clip.step.site)
        for calls in context.shared(Clips).by_line
        for clip in calls
        if clip.step is not None and context.site(clip.event.site) == finding.location
    }
    step = only(steps)
    if step is None or step.file != source.path:
        return
    clipping, stepping = (statement_on(source, one.line) for one in (finding.location, step))
    if clipping is None or stepping is None or source.start(stepping) < source.start(clipping):
        return
    call = call_named(source, stepping, ["step"])
    if call is not None and not call.args:  # the gradients of a scaler's step are scaled before it
        yield source.edits(moved_into(source, clipping, stepping))
