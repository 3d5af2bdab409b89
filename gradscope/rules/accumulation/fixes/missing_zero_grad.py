"""Zeroes gradients once per step."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.source_file import SourceFile, only
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statements import call_named, statement_on


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that inserts `zero_grad()`.

    It is inserted before the only backward of a step; behind the step if there are several, or the
    backward is in another block.
    """
    source = files.at(finding.location)
    step = finding.related[0] if finding.related else None
    if source is None or finding.location is None or step is None or step.file != source.path:
        return
    found = only(_steps(source, step.line))
    if found is None:
        return
    stepping, optimizer = found
    line = cst.parse_statement(f"{optimizer}.zero_grad()")
    assert isinstance(line, cst.SimpleStatementLine)
    zeroing = line.body[0]
    backward = statement_on(source, finding.location.line)
    if backward is not None and _is_only_pass(source, backward, source.parent(stepping)):
        changes = source.inserted_before(backward.body[0], zeroing)
    else:
        changes = source.inserted_after(stepping, zeroing)
    yield source.edits(changes)


def _steps(source: SourceFile, line: int) -> Iterator[tuple[cst.BaseSmallStatement, str]]:
    """Yield the statements of a line that step an optimizer, with its name."""
    for statement in source.statements(line):
        optimizer = optimizer_of(source, statement)
        if optimizer is not None and isinstance(statement, cst.BaseSmallStatement):
            yield statement, optimizer


def _is_only_pass(source: SourceFile, backward: cst.SimpleStatementLine, step: cst.CSTNode) -> bool:
    """Return whether the line of a step, and no other backward, is in the block of a backward."""
    block = source.parent(backward)
    passes = [
        one
        for one in source.inside(block, cst.Call)
        if isinstance(one.func, cst.Attribute) and one.func.attr.value == "backward"
    ]
    return source.parent(step) is block and len(passes) == 1


def optimizer_of(source: SourceFile, statement: cst.CSTNode) -> str | None:
    """Return the optimizer of `optimizer.step()` or `scaler.step(optimizer)`; None if unclear."""
    call = call_named(source, statement, ["step"])
    if call is None or not isinstance(call.func, cst.Attribute):
        return None
    if not call.args:
        return source.code(call.func.value)
    is_scaler = "scaler" in source.code(call.func.value).lower()
    is_named = isinstance(call.args[0].value, cst.Name | cst.Attribute)
    return source.code(call.args[0].value) if is_scaler and is_named else None
