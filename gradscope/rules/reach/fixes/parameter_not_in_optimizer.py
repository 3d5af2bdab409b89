"""Gives the optimizer the parameters that it lacks."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding, RelatedLocation
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.optimizers import Optimizers
from gradscope.source_edits.optimizers import (
    added_behind,
    given_parameters,
    made_behind,
    optimizer_call,
    owner_of_all,
)
from gradscope.source_edits.source_file import SourceFile
from gradscope.source_edits.source_files import SourceFiles


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that makes the optimizer later, or that gives it the whole model."""
    source = files.at(finding.location)
    if source is None or finding.location is None or finding.severity == "note":
        return
    if dict(finding.evidence)["made_after_optimizer"]:
        lines: list[Site | RelatedLocation] = [finding.location, *finding.related]
        yield source.edits(made_behind(source, lines))
        yield source.edits(added_behind(source, lines))
        return
    call = optimizer_call(source, finding.location)
    given = None if call is None else given_parameters(call)
    owner = None if given is None else owner_of_all(given)
    if isinstance(owner, cst.Attribute) and _are_all(finding, context):
        yield source.edits({owner: _root(source, owner)})


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
