"""Clips once, before the step."""

from collections.abc import Iterator

import libcst as cst

from gradscope.analysis.clipping.clips import Clips
from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.moved_statements import moved_into
from gradscope.source_edits.source_file import Changes, SourceFile, only
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statements import call_named, clip_statement, statement_with


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that moves the clip before the only step that uses its gradients.

    Under `accelerator.accumulate(…)`, where the step is called for each micro-batch, it is clipped
    under the condition that makes the step.
    """
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
    accelerator = _accumulating(source, clipping)
    if accelerator is not None:
        yield source.edits(_under(source, clipping, f"{accelerator}.sync_gradients"))
        return
    call = call_named(source, stepping, ["step"])
    if call is not None and not call.args:  # the gradients of a scaler's step are scaled before it
        yield source.edits(moved_into(source, clipping, stepping))


def _accumulating(source: SourceFile, statement: cst.CSTNode) -> str | None:
    """Return the accelerator of the `with accelerator.accumulate(…)` around a statement."""
    block = source.around(statement, cst.With, cst.FunctionDef)
    for item in block.items if isinstance(block, cst.With) else ():
        function = item.item.func if isinstance(item.item, cst.Call) else None
        if isinstance(function, cst.Attribute) and function.attr.value == "accumulate":
            return source.code(function.value)
    return None


def _under(source: SourceFile, statement: cst.BaseSmallStatement, condition: str) -> Changes:
    """Return the change that puts a statement under a condition; none if it shares its line."""
    line = source.parent(statement)
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return {}
    branch = cst.If(
        test=cst.parse_expression(condition),
        body=cst.IndentedBlock(body=[line.with_changes(leading_lines=[])]),
        leading_lines=line.leading_lines,
    )
    return {line: branch}
