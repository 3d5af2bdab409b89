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

    It is inserted before the first backward of a step, which also drops what another optimizer's
    loss left; behind the step if the backward is in another block.
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
    first = None if backward is None else _first_pass(source, backward, source.parent(stepping))
    if first is not None:
        changes = source.inserted_before(first.body[0], zeroing)
    else:
        changes = source.inserted_after(stepping, zeroing)
    yield source.edits(changes)


def _steps(source: SourceFile, line: int) -> Iterator[tuple[cst.BaseSmallStatement, str]]:
    """Yield the statements of a line that step an optimizer, with its name.

    What is named a schedule is none.
    """
    for statement in source.statements(line):
        optimizer = optimizer_of(source, statement)
        is_schedule = optimizer is not None and "sched" in optimizer.lower()
        if (
            optimizer is not None
            and not is_schedule
            and isinstance(statement, cst.BaseSmallStatement)
        ):
            yield statement, optimizer


def _first_pass(
    source: SourceFile, backward: cst.SimpleStatementLine, step: cst.CSTNode
) -> cst.SimpleStatementLine | None:
    """Return the first backward in the block of a step, behind the step before it.

    None if another block has a backward of this step.
    """
    block = source.parent(backward)
    if not isinstance(block, cst.IndentedBlock | cst.Module) or source.parent(step) is not block:
        return None
    at = next(number for number, line in enumerate(block.body) if line is step)
    before = [*block.body[:at]]
    for number, line in enumerate(before):
        if any(optimizer_of(source, one) for one in source.inside(line, cst.Expr)):
            before = [*block.body[number + 1 : at]]
    passes = [line for line in before if _is_pass(source, line)]
    is_whole = all(isinstance(line, cst.SimpleStatementLine) for line in passes)
    first = passes[0] if passes and is_whole else None
    return first if isinstance(first, cst.SimpleStatementLine) and len(first.body) == 1 else None


def _is_pass(source: SourceFile, line: cst.CSTNode) -> bool:
    return any(
        isinstance(one.func, cst.Attribute) and one.func.attr.value.endswith("backward")
        for one in source.inside(line, cst.Call)
    )


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
