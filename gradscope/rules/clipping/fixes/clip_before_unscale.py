"""Unscales gradients before they are clipped."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.source_file import SourceFile, only
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statements import clip_statement


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that inserts `scaler.unscale_(optimizer)` before the clip.

    Names are those of the only `scaler.step(optimizer)` behind the clip in its block.
    """
    source = files.at(finding.location)
    clipping = None if source is None else clip_statement(source, finding.location)
    if source is None or clipping is None:
        return
    step = only(_steps_behind(source, clipping))
    if step is None or not isinstance(step.func, cst.Attribute):
        return
    scaler, optimizer = source.code(step.func.value), source.code(step.args[0].value)
    unscaling = cst.parse_statement(f"{scaler}.unscale_({optimizer})")
    assert isinstance(unscaling, cst.SimpleStatementLine)
    yield source.edits(source.inserted_before(clipping, unscaling.body[0]))


def _steps_behind(source: SourceFile, clipping: cst.BaseSmallStatement) -> Iterator[cst.Call]:
    """Yield the calls `scaler.step(optimizer)` behind a statement in its block."""
    block = _block(source, clipping)
    for call in source.inside(block, cst.Call):
        statement = source.statement_of(call)
        is_step = isinstance(call.func, cst.Attribute) and call.func.attr.value == "step"
        if statement is None or not is_step or _block(source, statement) is not block:
            continue
        is_behind = source.start(statement) > source.start(clipping)
        if is_behind and len(call.args) == 1 and call.args[0].keyword is None:
            yield call


def _block(source: SourceFile, statement: cst.BaseSmallStatement) -> cst.CSTNode:
    line = source.parent(statement)
    return source.parent(line) if isinstance(line, cst.SimpleStatementLine) else line
