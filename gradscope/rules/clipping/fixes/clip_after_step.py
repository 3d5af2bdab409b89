"""Clips before the step."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.callers import statements_that_only
from gradscope.source_edits.moved_statements import moved_before
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statements import call_named, clip_statement, statement_with


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that moves the clip before the step of the same pass through a loop.

    A function that only clips counts as the line that calls it.
    """
    source = files.at(finding.location)
    if source is None or finding.location is None or not finding.related:
        return
    clipping = clip_statement(source, finding.location)
    stepping = statement_with(source, finding.related[0], "step")
    if clipping is None or stepping is None:
        return
    call = call_named(source, stepping, ["step"])
    if call is None or call.args:  # the gradients of a scaler's step are scaled before it
        return
    repeated = source.around(stepping, cst.FunctionDef, cst.For, cst.If, cst.While)
    for statement in statements_that_only(source, clipping):
        if repeated is None or source.start(statement)[0] in source.lines(repeated):
            yield source.edits(moved_before(source, statement, stepping))
            return
