"""Unscales gradients before they are clipped."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.callers import statements_that_only
from gradscope.source_edits.source_file import SourceFile, only
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statements import clip_statement, line_of


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that inserts `scaler.unscale_(optimizer)` before the clip.

    Names are those of the only `scaler.step(optimizer)` behind the clip. A function that only clips
    counts as the line that calls it.
    """
    del context
    source = files.at(finding.location)
    clipping = None if source is None else clip_statement(source, finding.location)
    if source is None or clipping is None:
        return
    for statement in statements_that_only(source, clipping):
        step = only(_steps_behind(source, statement))
        if step is not None and isinstance(step.func, cst.Attribute):
            scaler, optimizer = source.code(step.func.value), source.code(step.args[0].value)
            unscaling = line_of(f"{scaler}.unscale_({optimizer})")
            yield source.edits(source.inserted_before(statement, unscaling.body[0]))
            return


def _steps_behind(source: SourceFile, clipping: cst.BaseSmallStatement) -> list[cst.Call]:
    """Return the calls `scaler.step(optimizer)` behind a statement.

    They are in its block, or in the one around its condition.
    """
    block = _block(source, clipping)
    while True:
        found = [
            call
            for call in source.inside(block, cst.Call)
            if _steps_one(call) and _is_behind(source, call, clipping, block)
        ]
        guard = source.parent(block) if block is not source.module else None
        if found or not isinstance(guard, cst.If):
            return found
        block = source.parent(guard)


def _steps_one(call: cst.Call) -> bool:
    is_step = isinstance(call.func, cst.Attribute) and call.func.attr.value == "step"
    return is_step and len(call.args) == 1 and call.args[0].keyword is None


def _is_behind(
    source: SourceFile, call: cst.Call, clipping: cst.BaseSmallStatement, block: cst.CSTNode
) -> bool:
    """Return whether a call is in a statement of a block, behind another statement."""
    statement = source.statement_of(call)
    if statement is None or _block(source, statement) is not block:
        return False
    return source.start(statement) > source.start(clipping)


def _block(source: SourceFile, statement: cst.BaseSmallStatement) -> cst.CSTNode:
    line = source.parent(statement)
    return source.parent(line) if isinstance(line, cst.SimpleStatementLine) else line
