"""Clips once, before the step."""

from collections.abc import Iterator

from gradscope.analysis.clipping.clips import Clips
from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.moved_statements import moved_into
from gradscope.source_edits.source_file import only
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statements import call_named, clip_statement, statement_with


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
    clipping = clip_statement(source, finding.location)
    stepping = statement_with(source, step, "step")
    if clipping is None or stepping is None or source.start(stepping) < source.start(clipping):
        return
    call = call_named(source, stepping, ["step"])
    if call is not None and not call.args:  # the gradients of a scaler's step are scaled before it
        yield source.edits(moved_into(source, clipping, stepping))
