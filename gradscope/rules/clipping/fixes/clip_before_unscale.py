"""Unscales gradients before they are clipped."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.source_file import SourceFile, only
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statement_order import call_named, statement_on


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that inserts `scaler.unscale_(optimizer)` before the clip.

    Names are those of the only `scaler.step(optimizer)` behind the clip in its block.
    """
    source = files.at(finding.location)
    clipping = (
        None
        if source is None or finding.location is None
        else (statement_on(source, finding.location.line))
    )
    if source is None or clipping is None:
        return
    step = only(_steps_behind(source, clipping))
    if step is None or not isinstance(step.func, cst.Attribute):
        return
    scaler, optimizer = source.code(step.func.value), source.code(step.args[0].value)
    unscaling = cst.parse_statement(f"{scaler}.unscale_({optimizer})")
    assert isinstance(unscaling, cst.SimpleStatementLine)
    yield source.edits(source.inserted_before(clipping.body[0], unscaling.body[0]))


def _steps_behind(source: SourceFile, clipping: cst.SimpleStatementLine) -> Iterator[cst.Call]:
    """Yield the calls `scaler.step(optimizer)` behind a statement in its block."""
    block = source.parent(clipping)
    for statement in source.inside(block, cst.SimpleStatementLine):
        is_behind = source.start(statement) > source.start(clipping)
        if is_behind and source.parent(statement) is block:
            call = call_named(source, statement, ["step"])
            if call is not None and len(call.args) == 1 and call.args[0].keyword is None:
                yield call
