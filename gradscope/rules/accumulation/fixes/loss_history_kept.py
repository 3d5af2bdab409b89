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
    stored = only(_added(source, finding.location.line, name))
    added = None if stored is None else _tensor(stored)
    if added is not None:
        new = method_call(added, "detach")
        yield source.edits({added: in_place_of(source, added, new)})


def _added(source: SourceFile, line: int, name: str) -> Iterator[cst.BaseExpression]:
    """Yield what a line adds to a variable, or to a list."""
    for statement in source.on_line(line, cst.AugAssign):
        if source.code(statement.target) == name or _is_element(source, statement.target, name):
            yield statement.value
    for assignment in source.on_line(line, cst.Assign):
        targets = [one.target for one in assignment.targets]
        if [source.code(one) for one in targets] == [name]:
            yield _summand(source, assignment.value, name)
        elif len(targets) == 1 and _is_element(source, targets[0], name):
            yield assignment.value
    yield from _appended(source, line, name)


def _appended(source: SourceFile, line: int, name: str) -> Iterator[cst.BaseExpression]:
    """Yield what a line appends to a list, or to one of several lists."""
    for call in source.on_line(line, cst.Call):
        function = call.func
        is_append = isinstance(function, cst.Attribute) and function.attr.value == "append"
        if is_append and len(call.args) == 1 and isinstance(function, cst.Attribute):
            owner = function.value
            if source.code(owner) == name or _is_element(source, owner, name):
                yield call.args[0].value


def _is_element(source: SourceFile, node: cst.BaseExpression, name: str) -> bool:
    """Return whether an expression is `name[…]`."""
    return isinstance(node, cst.Subscript) and source.code(node.value) == name


def _summand(source: SourceFile, value: cst.BaseExpression, name: str) -> cst.BaseExpression:
    """Return `b` of `name + b`, otherwise the whole value."""
    is_sum = isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Add)
    if is_sum and isinstance(value, cst.BinaryOperation) and source.code(value.left) == name:
        return value.right
    return value


def _tensor(value: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the only variable of a list or tuple; anything else as it is."""
    if not isinstance(value, cst.List | cst.Tuple):
        return value
    found = [one.value for one in value.elements if isinstance(one.value, cst.Name | cst.Attribute)]
    return only(found)
