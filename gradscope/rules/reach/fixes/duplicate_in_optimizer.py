"""Lists every parameter once."""

from collections.abc import Iterable, Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding
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
    call = None if source is None else optimizer_call(source, finding.location)
    given = None if call is None else given_parameters(call)
    if source is None or given is None:
        return
    if "parameters_listed_twice" not in dict(finding.evidence):
        yield source.edits(_without_module(source, given, finding, context))
        return
    value = resolved(source, given)
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


def _without_module(
    source: SourceFile, given: cst.BaseExpression, finding: Finding, context: RuleContext
) -> Changes:
    """Return the change of `model.parameters()` to those that are not of one module.

    Empty if what two optimizers hold is not exactly the parameters of a module.
    """
    owner = owner_of_all(given)
    shared = set(finding.parameters)
    paths = {name.rpartition(".")[0] for name in shared}
    module = only(one for one in _prefixes(paths) if _names_under(context, one) == shared)
    if owner is None or module is None:
        return {}
    root = source.code(owner)
    path = module.removeprefix(f"{root.rpartition('.')[2]}.")
    kept = f'[p for name, p in {root}.named_parameters() if not name.startswith("{path}.")]'
    return {given: cst.parse_expression(kept)}


def _prefixes(paths: Iterable[str]) -> set[str]:
    """Return the modules in which all of some modules are."""
    found = [{path[:end] for end in _ends(path)} for path in paths]
    return set.intersection(*found) - {""}


def _ends(path: str) -> list[int]:
    return [*(at for at, letter in enumerate(path) if letter == "."), len(path)]


def _names_under(context: RuleContext, module: str) -> set[str]:
    names = (one.name for one in context.recording.parameters)
    return {name for name in names if name.startswith(f"{module}.")}


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
