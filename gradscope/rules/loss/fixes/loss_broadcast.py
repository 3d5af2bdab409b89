"""Gives the operands of a loss the same shape."""

from collections.abc import Iterator, Sequence

import libcst as cst

from gradscope.recording.evidence.forward import ComparisonRecord
from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.rules.loss.loss_broadcast import SqueezedDimension, squeezed_dimension
from gradscope.source_edits.source_file import SourceFile, in_place_of, method_call, only
from gradscope.source_edits.source_files import SourceFiles

_OPERATORS = {"sub": cst.Subtract, "mul": cst.Multiply}


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edits that squeeze the operand with one dimension too many.

    If that is not enough, the other operand gets the dimension for all statements that follow if it
    is an argument; otherwise the operand is squeezed wherever the statement has it.
    """
    source = files.at(finding.location)
    records = [
        record
        for record in context.recording.evidence_of(ComparisonRecord)
        if context.site(record.site) == finding.location
    ]
    wanted = {(one.operation, squeezed_dimension(one.left.dims, one.right.dims)) for one in records}
    if source is None or finding.location is None or len(wanted) != 1:
        return
    ((operation, dimension),) = wanted
    call = only(_comparisons(source, finding.location.line, operation))
    operands = None if call is None else _operands(call)
    if dimension is None or operands is None:
        return
    operand, other = operands if dimension.is_of_first else reversed(operands)
    yield source.edits(_squeezed(source, [operand], dimension))
    statement = source.statement_of(operand)
    if statement is not None and _is_argument(source, statement, other):
        name = source.code(other)
        line = cst.parse_statement(f"{name} = {name}.unsqueeze({dimension.position})")
        added = cst.ensure_type(line, cst.SimpleStatementLine).body[0]
        yield source.edits(source.inserted_before(statement, added))
    alike = [] if statement is None else _alike(source, statement, operand)
    if len(alike) > 1:
        yield source.edits(_squeezed(source, alike, dimension))


def _is_argument(
    source: SourceFile, statement: cst.BaseSmallStatement, value: cst.BaseExpression
) -> bool:
    """Return whether a value is an argument of the function that a statement is a part of."""
    function = source.around(statement, cst.FunctionDef, cst.For, cst.While, cst.Lambda)
    if not isinstance(function, cst.FunctionDef) or not isinstance(value, cst.Name):
        return False
    return value.value in [one.name.value for one in function.params.params]


def _alike(
    source: SourceFile, statement: cst.BaseSmallStatement, operand: cst.BaseExpression
) -> list[cst.BaseExpression]:
    """Return the values of a statement that read as an operand does."""
    targets = [*source.inside(statement, cst.AssignTarget)]
    assigned = {id(one) for target in targets for one in source.inside(target, type(operand))}
    read = source.inside(statement, type(operand))
    return [one for one in read if id(one) not in assigned and one.deep_equals(operand)]


def _squeezed(
    source: SourceFile, operands: Sequence[cst.BaseExpression], dimension: SqueezedDimension
) -> dict[cst.CSTNode, cst.CSTNode]:
    return {
        old: in_place_of(source, old, method_call(old, "squeeze", str(dimension.position)))
        for old in operands
    }


_Comparison = cst.Call | cst.BinaryOperation


def _comparisons(source: SourceFile, line: int, operation: str) -> list[_Comparison]:
    """Return the calls and operators on a line that may be the comparison."""
    operator = _OPERATORS.get(operation)
    operations = [] if operator is None else source.on_line(line, cst.BinaryOperation)
    found = [one for one in operations if isinstance(one.operator, operator or ())]
    return [*found, *_calls(source, line, operation)]


def _calls(source: SourceFile, line: int, operation: str) -> list[cst.Call]:
    """Return calls of a function by its name; else all with two tensors, such as a loss module."""
    calls = source.on_line(line, cst.Call)
    named = [one for one in calls if _last_name(one.func) == operation]
    if named or operation in _OPERATORS:
        return named
    return [one for one in calls if _operands(one) is not None]


def _last_name(function: cst.BaseExpression) -> str:
    name = function.attr if isinstance(function, cst.Attribute) else function
    return name.value if isinstance(name, cst.Name) else ""


def _operands(
    comparison: _Comparison,
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    if isinstance(comparison, cst.BinaryOperation):
        return comparison.left, comparison.right
    if any(one.star for one in comparison.args):
        return None
    named = {one.keyword.value: one.value for one in comparison.args if one.keyword is not None}
    plain = [one.value for one in comparison.args if one.keyword is None]
    owner = comparison.func.value if isinstance(comparison.func, cst.Attribute) else None
    if owner is not None and len(comparison.args) == len(plain) == 1:
        return (owner, plain[0]) if _last_name(comparison.func) in _OPERATORS else None
    first = plain[0] if plain else named.get("input")
    second = plain[1] if len(plain) > 1 else named.get("target")
    return None if first is None or second is None else (first, second)
