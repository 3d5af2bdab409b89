"""Adds up numbers without their graphs."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.source_file import SourceFile, in_place_of, method_call, only
from gradscope.source_edits.source_files import SourceFiles


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that detaches what the line adds."""
    source = files.at(finding.location)
    if source is None or finding.location is None:
        return
    name = str(dict(finding.evidence)["kept_by"])
    added = only(_added(source, finding.location.line, name))
    if added is not None:
        new = method_call(added, "detach")
        yield source.edits({added: in_place_of(source, added, new)})


def _added(source: SourceFile, line: int, name: str) -> Iterator[cst.BaseExpression]:
    """Yield what a line adds to a variable, or to a list."""
    for statement in source.on_line(line, cst.AugAssign):
        if source.code(statement.target) == name:
            yield statement.value
    for assignment in source.on_line(line, cst.Assign):
        targets = [source.code(one.target) for one in assignment.targets]
        if targets == [name]:
            yield from _summand(source, assignment.value, name)
    for call in source.on_line(line, cst.Call):
        if source.code(call.func) == f"{name}.append" and len(call.args) == 1:
            yield call.args[0].value


def _summand(
    source: SourceFile, value: cst.BaseExpression, name: str
) -> Iterator[cst.BaseExpression]:
    """Yield `b` of `name + b`."""
    is_sum = isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Add)
    if is_sum and isinstance(value, cst.BinaryOperation) and source.code(value.left) == name:
        yield value.right
