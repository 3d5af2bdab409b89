"""Detaches a state between two steps, or keeps the graph for a second backward."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.evidence.failures import AutogradErrorRecord, CarriedHistory
from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.autograd_errors import errors_of, site_of
from gradscope.source_edits.passes import call_on
from gradscope.source_edits.source_file import SourceFile, in_place_of, method_call, only
from gradscope.source_edits.source_files import SourceFiles


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edits that detach the state, or else that keep the graph."""
    source = files.at(finding.location)
    records = [
        record
        for record in errors_of(context, "freed")
        if context.site(site_of(record, "forward", "reuse", "call")) == finding.location
    ]
    carried = {one for record in records for one in record.carried}
    if source is None or len(carried) != 1:
        record = only(records)
        if record is not None and not carried:
            yield from _keeping(context, record, files)
        return
    (one,) = carried
    statement = only(_stores(source, one)) if one.is_replaced else None
    if statement is None:
        return
    for whole in _detached(source, statement, one.attribute):
        if whole:
            yield whole


def _keeping(
    context: RuleContext, record: AutogradErrorRecord, files: SourceFiles
) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit of the first of two `backward()` in a function without a step between them."""
    first, again = (context.site(site_of(record, role)) for role in ("freed", "call"))
    source = files.at(first)
    if source is None or first is None:
        return
    freeing = call_on(source, first, "backward")
    if freeing is None or freeing.args:
        return
    function = source.around(freeing, cst.FunctionDef)
    between = source.module if function is None else function
    end = source.end(between)
    # Without a line, the loss that the function returns is run backward by its caller.
    if again is not None:
        failing = call_on(source, again, "backward")
        if failing is None or function is not source.around(failing, cst.FunctionDef):
            return
        end = source.start(failing)
    if source.start(freeing) >= end or any(
        source.start(freeing) < source.start(one) < end
        for one in source.inside(between, cst.Call)
        if isinstance(one.func, cst.Attribute) and one.func.attr.value == "step"
    ):
        return
    kept = cst.parse_expression("f(retain_graph=True)")
    assert isinstance(kept, cst.Call)
    yield source.edits({freeing: freeing.with_changes(args=kept.args)})


def _stores(source: SourceFile, carried: CarriedHistory) -> Iterator[cst.Assign]:
    """Yield the assignments to a state in methods of its class that run in a forward."""
    owner, _, attribute = carried.name.rpartition(".")
    class_name = owner.rpartition(".")[2]
    for statement in source.all(cst.Assign):
        function = source.around(statement, cst.FunctionDef)
        kind = source.around(statement, cst.ClassDef)
        if function is None or kind is None or kind.name.value != class_name:
            continue
        if function.name.value == "__init__" or "reset" in function.name.value:
            continue
        if any(
            _is_own(one, attribute)
            for target in statement.targets
            for one in source.inside(target, cst.Attribute)
        ):
            yield statement


def _is_own(node: cst.Attribute, attribute: str) -> bool:
    is_self = isinstance(node.value, cst.Name) and node.value.value == "self"
    return is_self and node.attr.value == attribute


def _detached(
    source: SourceFile, statement: cst.Assign, attribute: str
) -> Iterator[tuple[Edit, ...]]:
    """Yield the edits that detach the state when it is stored, then when it is read.

    When it is stored, it may be a tensor or a tuple of tensors.
    """
    is_alone = len(statement.targets) == 1 and isinstance(
        statement.targets[0].target, cst.Attribute
    )
    if is_alone:
        value = statement.value
        new = method_call(value, "detach")
        yield source.edits({value: in_place_of(source, value, new)})
        yield source.edits({value: cst.parse_expression(_parts(source.code(value)))})
    else:
        for detached in (f"{attribute}.detach()", _parts(attribute)):
            line = cst.parse_statement(f"{attribute} = {detached}")
            assert isinstance(line, cst.SimpleStatementLine)
            yield source.edits(source.inserted_after(statement, line.body[0]))
    read = only(
        one
        for one in source.inside(statement.value, cst.Attribute)
        if _is_own(one, attribute.rpartition(".")[2])
    )
    if read is not None:
        yield source.edits({read: method_call(read, "detach")})


def _parts(code: str) -> str:
    return f"tuple(part.detach() for part in {code})"
