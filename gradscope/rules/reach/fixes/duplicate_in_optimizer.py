"""Lists every parameter once."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Finding
from gradscope.recording.fix import Edit
from gradscope.rules.context import RuleContext
from gradscope.source_edits.arguments import without_argument
from gradscope.source_edits.optimizers import (
    given_parameters,
    optimizer_call,
    owner_of_all,
    resolved,
    summands,
)
from gradscope.source_edits.source_file import Changes, SourceFile, in_place_of, only
from gradscope.source_edits.source_files import SourceFiles


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that leaves out a part whose whole is listed, or what is listed again."""
    source = files.at(finding.location)
    if source is None or "parameters_listed_twice" not in dict(finding.evidence):
        return
    call = optimizer_call(source, finding.location)
    given = None if call is None else given_parameters(call)
    value = None if given is None else resolved(source, given)
    if value is None:
        return
    if isinstance(value, cst.List) and any(_is_group(one) for one in value.elements):
        return
    changes = _without_part(source, value)
    if changes:
        yield source.edits(changes)
    elif isinstance(value, cst.BinaryOperation | cst.List | cst.ListComp | cst.Call):
        once = cst.parse_expression("list(dict.fromkeys(x))")
        assert isinstance(once, cst.Call) and isinstance(once.args[0].value, cst.Call)
        inner = once.args[0].value.with_changes(args=[cst.Arg(value)])
        yield source.edits({value: once.with_changes(args=[cst.Arg(inner)])})


def _is_group(element: cst.BaseElement) -> bool:
    return isinstance(element.value, cst.Dict | cst.Call) and not isinstance(
        element, cst.StarredElement
    )


def _without_part(source: SourceFile, value: cst.BaseExpression) -> Changes:
    """Return the change that removes the only part that another part holds; else empty."""
    if isinstance(value, cst.BinaryOperation):
        parts = list(summands(value))
        part = only(_covered(source, parts))
        outer = None if part is None else source.parent(part)
        if part is None or not isinstance(outer, cst.BinaryOperation):
            return {}
        other = outer.right if outer.left is part else outer.left
        return {outer: in_place_of(source, outer, other)}
    if isinstance(value, cst.List):
        starred = [one for one in value.elements if isinstance(one, cst.StarredElement)]
        part = only(_covered(source, [one.value for one in starred]))
        left = [one for one in value.elements if one.value is not part]
        if part is None:
            return {}
        left[-1] = left[-1].with_changes(comma=value.elements[-1].comma)
        return {value: value.with_changes(elements=left)}
    is_chain = isinstance(value, cst.Call) and source.qualified(value.func) == "itertools.chain"
    if is_chain and isinstance(value, cst.Call):
        part = only(_covered(source, [one.value for one in value.args]))
        argument = next((one for one in value.args if one.value is part), None)
        if argument is not None:
            return {value: value.with_changes(args=without_argument(value.args, argument))}
    return {}


def _covered(source: SourceFile, parts: list[cst.BaseExpression]) -> Iterator[cst.BaseExpression]:
    """Yield the parts `X.y.parameters()` beside `X.parameters()`."""
    owners = {id(one): owner_of_all(one) for one in parts}
    names = {source.code(owner) for owner in owners.values() if owner is not None}
    for one in parts:
        owner = owners[id(one)]
        while isinstance(owner, cst.Attribute | cst.Subscript):
            owner = owner.value
            if source.code(owner) in names:
                yield one
                break
