"""Clips all parameters of the optimizer."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.evidence.training import OptimizerRecord
from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.optimizers import Optimizers
from gradscope.source_edits.optimizers import (
    given_parameters,
    optimizer_call,
    owner_of_all,
    resolved,
    summands,
)
from gradscope.source_edits.source_file import SourceFile, only
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statements import is_clip
from gradscope.source_edits.variables import is_visible, names_in, value_of


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit of the clip's first argument, or of the iterator that was used up."""
    source = files.at(finding.location)
    if source is None or finding.location is None or finding.severity == "note":
        return
    clip = only(
        one for one in source.on_line(finding.location.line, cst.Call) if is_clip(source, one)
    )
    clipped = None if clip is None else given_parameters(clip)
    if clip is None or clipped is None:
        return
    if "calls_without_parameters" in dict(finding.evidence):
        stored = value_of(source, clipped)
        if stored is not None and not _is_list(stored):
            kept = cst.Call(func=cst.Name("list"), args=[cst.Arg(_bare(stored))])
            yield source.edits({stored: kept})
        return
    whole = _whole(source, context, clipped)
    others = [one for one in source.all(cst.Call) if is_clip(source, one)]
    if whole is not None and len(others) == 1:
        yield source.edits({clipped: whole.deep_clone()})


def _is_list(value: cst.BaseExpression) -> bool:
    if isinstance(value, cst.List | cst.ListComp | cst.Tuple | cst.BinaryOperation):
        return True
    function = value.func if isinstance(value, cst.Call) else None
    return isinstance(function, cst.Name) and function.value in ("list", "sorted", "tuple")


def _bare(value: cst.BaseExpression) -> cst.BaseExpression:
    is_generator = isinstance(value, cst.GeneratorExp)
    return value.with_changes(lpar=[], rpar=[]) if is_generator else value


def _whole(
    source: SourceFile, context: RuleContext, clipped: cst.BaseExpression
) -> cst.BaseExpression | None:
    """Return the argument of the only optimizer; None if the clip cannot use the same one."""
    record = only(one for one in Optimizers(context).records if isinstance(one, OptimizerRecord))
    call = None if record is None else optimizer_call(source, context.site(record.site))
    given = None if call is None else given_parameters(call)
    if given is None or not (
        _are_attributes(source, given, clipped) or is_visible(source, given, clipped)
    ):
        return None
    if not _names(source, clipped) & _names(source, given):
        return None
    if isinstance(given, cst.Name) and _is_list(resolved(source, given)):
        return given
    parts = list(summands(given))
    return given if all(owner_of_all(one) is not None for one in parts) else None


def _are_attributes(source: SourceFile, *parts: cst.BaseExpression) -> bool:
    """Return whether expressions name nothing but `self`, of one class."""
    kinds = {id(source.around(one, cst.ClassDef)) for one in parts}
    return len(kinds) == 1 and all(names_in(source, one) == {"self"} for one in parts)


def _names(source: SourceFile, given: cst.BaseExpression) -> set[str]:
    """Return the names that lead to parameters, also through a variable."""
    return names_in(source, given) | names_in(source, resolved(source, given))
