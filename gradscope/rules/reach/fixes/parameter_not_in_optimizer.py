"""Gives the optimizer the parameters that it lacks."""

from collections.abc import Iterator

import libcst as cst
from libcst.metadata import Assignment

from gradscope.recording.finding import Edit, Finding, RelatedLocation
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.optimizers import Optimizers
from gradscope.rules.reach.fixes.missing_parts import is_known, with_missing
from gradscope.source_edits.made_optimizers import (
    added_behind,
    made_again,
    made_behind,
    restored,
)
from gradscope.source_edits.optimizers import (
    given_parameters,
    optimizer_call,
    owner_of_all,
    resolved,
)
from gradscope.source_edits.source_file import Changes, SourceFile, only
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.variables import names_in


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that makes the optimizer later, or that gives it what it lacks."""
    source = files.at(finding.location)
    if source is None or finding.location is None or finding.severity == "note":
        return
    evidence = dict(finding.evidence)
    if "returned" in evidence:
        return  # where the copies come back is the script's matter
    if evidence["made_after_optimizer"]:
        lines: list[Site | RelatedLocation] = [finding.location, *finding.related]
        for change in (made_behind, added_behind, restored, made_again):
            yield source.edits(change(source, lines))
        return
    yield from _completed(source, finding, context)


def _completed(
    source: SourceFile, finding: Finding, context: RuleContext
) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit of what an optimizer is given when it is made."""
    call = optimizer_call(source, finding.location)
    given = None if call is None else given_parameters(call)
    owner = None if given is None else owner_of_all(given)
    intended = None if call is None or owner is None else _intended(source, call, owner, finding)
    if owner is not None and intended is not None:
        yield source.edits({owner: cst.parse_expression(intended)})
        return
    if isinstance(owner, cst.Attribute) and _are_all(finding, context):
        yield source.edits({owner: _root(source, owner)})
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


def _root(source: SourceFile, owner: cst.Attribute) -> cst.BaseExpression:
    """Return the object of the model: `model` of `model.head`, `self.model` of `self.model.head`.

    A model of `self` is an attribute of it.
    """
    node: cst.BaseExpression = owner
    while isinstance(node, cst.Attribute):
        inner = node.value
        if isinstance(inner, cst.Name) and inner.value == "self":
            return node
        node = inner
    del source
    return node


def _are_all(finding: Finding, context: RuleContext) -> bool:
    """Return whether the optimizer would hold all parameters that require grad."""
    optimizers = Optimizers(context)
    held = {context.recording.parameters[index].name for index in optimizers.held}
    wanted = {one.name for one in context.recording.parameters if one.requires_grad}
    return len(optimizers.records) == 1 and wanted <= held | set(finding.parameters)
