"""Edits of the parameters that an optimizer is given."""

from collections.abc import Callable, Iterable, Iterator

import libcst as cst
from libcst.metadata import Assignment

from gradscope.recording.finding import Finding
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import Edits, FixContext
from gradscope.rules.helpers.optimizers import Optimizers
from gradscope.rules.reach.fixes.missing_parts import is_known, with_missing
from gradscope.source_edits.calls import without_argument
from gradscope.source_edits.optimizers import (
    Lines,
    added_behind,
    given_parameters,
    made_again,
    made_behind,
    optimizer_call,
    owner_of_all,
    resolved,
    restored,
    stacked_values,
    summands,
)
from gradscope.source_edits.source_file import Changes, SourceFile, in_place_of, only
from gradscope.source_edits.variables import names_in


def duplicate_in_optimizer(fix: FixContext) -> Iterator[Edits]:
    """Leave out a part whose whole is listed, or what is listed again."""
    source = fix.source
    call = optimizer_call(source, fix.site)
    given = None if call is None else given_parameters(call)
    if given is None:
        return
    if "parameters_listed_twice" not in fix.evidence:
        yield source.edits(_without_module(source, given, fix.finding, fix.context))
        return
    value = resolved(source, given)
    if isinstance(value, cst.List) and any(_is_group(one) for one in value.elements):
        return
    changes = _without_part(source, value)
    if changes:
        yield source.edits(changes)
    elif isinstance(value, cst.BinaryOperation | cst.List | cst.ListComp | cst.Call):
        # A set would lose the order of the parameters, by which an optimizer's state is loaded.
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


def parameter_not_in_optimizer(fix: FixContext) -> Iterator[Edits]:
    """Make the optimizer later, or give it what it lacks."""
    if "returned" in fix.evidence:
        return  # where the copies come back is the script's matter
    if fix.evidence["made_after_optimizer"]:
        yield from _made_later(fix, made_behind, added_behind, restored, made_again)
    else:
        yield from _completed(fix.source, fix.finding, fix.context)


def _completed(source: SourceFile, finding: Finding, context: RuleContext) -> Iterator[Edits]:
    """Yield the edit of what an optimizer is given when it is made."""
    call = optimizer_call(source, finding.location)
    given = None if call is None else given_parameters(call)
    owner = None if given is None else owner_of_all(given)
    intended = None if call is None or owner is None else _intended(source, call, owner, finding)
    if owner is not None and intended is not None:
        yield source.edits({owner: cst.parse_expression(intended)})
        return
    if isinstance(owner, cst.Attribute) and _are_all(finding, context):
        yield source.edits({owner: _root(owner)})
    elif given is not None and call is not None and owner is None:
        if dict(finding.evidence)["unfrozen_later"]:
            yield source.edits(_unfiltered(source, given))
        else:
            yield source.edits(with_missing(source, call, given, finding, context))
    other = None if owner is None else _other_module(finding, source, owner)
    if given is not None and owner is not None and other is not None:
        text = f"[*{source.code(owner)}.parameters(), *{other}.parameters()]"
        yield source.edits({given: cst.parse_expression(text)})


def _intended(
    source: SourceFile, call: cst.Call, owner: cst.BaseExpression, finding: Finding
) -> str | None:
    """Return the module that is missing, if two optimizers are given the same other one."""
    alike = [
        one
        for one in source.all(cst.Call)
        if _makes_optimizer(source, one)
        and (given := given_parameters(one)) is not None
        and (other := owner_of_all(given)) is not None
        and source.code(other) == source.code(owner)
    ]
    assigned = (source.around(one, cst.Assign) for one in alike)
    # Of one variable, the second optimizer replaces the first.
    variables = {source.code(one.targets[0].target) for one in assigned if one is not None}
    name = only({one.partition(".")[0] for one in finding.parameters})
    if len(alike) != 2 or len(variables) != 2 or name is None:
        return None
    code = f"self.{name}" if isinstance(owner, cst.Attribute) else name
    is_beside = source.code(owner).count(".") == code.count(".")
    return code if is_beside and is_known(source, call, code.split(".")) else None


def _makes_optimizer(source: SourceFile, call: cst.Call) -> bool:
    return source.qualified(call.func).startswith("torch.optim.")


def _other_module(finding: Finding, source: SourceFile, owner: cst.BaseExpression) -> str | None:
    """Return the variable of the module that is missing, such as a loss; None if unsure.

    One assignment binds it, above the optimizer and in its function.
    """
    names = {name.partition(".")[0] for name in finding.parameters}
    scope = source.scope(owner)
    if len(names) != 1 or scope is None or names & names_in(source, owner):
        return None
    name = names.pop()
    bound = only(scope[name]) if name.isidentifier() else None
    is_here = isinstance(bound, Assignment) and bound.scope is scope
    if not is_here or not isinstance(bound, Assignment) or list(finding.modules) != [name]:
        return None
    return name if source.start(bound.node) < source.start(owner) else None


def _unfiltered(source: SourceFile, given: cst.BaseExpression) -> Changes:
    """Return the change that keeps parameters which do not require grad yet.

    Empty unless `if p.requires_grad` is the only condition of a comprehension.
    """
    value = resolved(source, given)
    if not isinstance(value, cst.ListComp | cst.GeneratorExp):
        return {}
    loops = list(source.inside(value.for_in, cst.CompFor))
    tests = [one for loop in loops for one in loop.ifs]
    test = only(tests)
    loop = None if test is None else source.parent(test)
    is_frozen = test is not None and source.code(test.test).endswith(".requires_grad")
    if not is_frozen or not isinstance(loop, cst.CompFor):
        return {}
    is_all = source.code(value.elt) == source.code(loop.target) and value.for_in is loop
    if is_all and loop.inner_for_in is None and owner_of_all(loop.iter) is not None:
        is_list = isinstance(value, cst.ListComp)
        return {value: loop.iter if value is given else _listed(loop.iter, is_list=is_list)}
    return {loop: loop.with_changes(ifs=[])}


def _listed(parameters: cst.BaseExpression, *, is_list: bool) -> cst.BaseExpression:
    """Return parameters as a list, if they are to be one."""
    made = cst.Call(func=cst.Name("list"), args=[cst.Arg(parameters)])
    return made if is_list else parameters


def _root(owner: cst.Attribute) -> cst.BaseExpression:
    """Return the object of the model: `model` of `model.head`, `self.model` of `self.model.head`.

    A model of `self` is an attribute of it.
    """
    node: cst.BaseExpression = owner
    while isinstance(node, cst.Attribute):
        inner = node.value
        if isinstance(inner, cst.Name) and inner.value == "self":
            return node
        node = inner
    return node


def _are_all(finding: Finding, context: RuleContext) -> bool:
    """Return whether the optimizer would hold all parameters that require grad."""
    optimizers = Optimizers(context)
    held = {context.recording.parameters[index].name for index in optimizers.held}
    wanted = {one.name for one in context.recording.parameters if one.requires_grad}
    return len(optimizers.records) == 1 and wanted <= held | set(finding.parameters)


def stale_optimizer_parameter(fix: FixContext) -> Iterator[Edits]:
    """Make the optimizer later, or add a group of parameters to it."""
    yield from _made_later(fix, stacked_values, made_behind, added_behind, restored, made_again)


def _made_later(fix: FixContext, *ways: Callable[[SourceFile, Lines], Changes]) -> Iterator[Edits]:
    """Yield the edits by which an optimizer gets parameters that are made behind it."""
    lines = [fix.site, *fix.finding.related]
    yield from (fix.source.edits(way(fix.source, lines)) for way in ways)
