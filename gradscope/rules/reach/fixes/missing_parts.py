"""Adds the modules that a list of parameters or of groups leaves out."""

from collections.abc import Iterable

import libcst as cst

from gradscope.recording.finding import Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.optimizers import owner_of_all, resolved
from gradscope.source_edits.source_file import Changes, SourceFile, only


def with_missing(
    source: SourceFile,
    call: cst.Call,
    given: cst.BaseExpression,
    finding: Finding,
    context: RuleContext,
) -> Changes:
    """Return the change that adds what a finding names to what an optimizer is given.

    Empty if that is no list, sum or chain, or if the code does not show how to name the modules.
    """
    parts = _missing(source, call, finding, context)
    if not parts:
        return {}
    value = resolved(source, given)
    match value:
        case cst.List(elements=[*elements]) if elements:
            return _with_elements(value, elements, parts, has_rate=_has_rate(call))
        case cst.BinaryOperation(operator=cst.Add()):
            added: cst.BaseExpression = value.with_changes(lpar=[], rpar=[])
            for one in parts:
                right = cst.parse_expression(f"list({one})" if one.endswith(")") else f"[{one}]")
                added = cst.BinaryOperation(left=added, operator=cst.Add(), right=right)
            return {value: added.with_changes(lpar=value.lpar, rpar=value.rpar)}
        case cst.Call() if source.qualified(value.func) == "itertools.chain":
            codes = [one if one.endswith(")") else f"[{one}]" for one in parts]
            more = [cst.Arg(cst.parse_expression(one)) for one in codes]
            return {value: value.with_changes(args=[*value.args, *more])}
    return {}


def _with_elements(
    value: cst.List,
    elements: list[cst.BaseElement],
    parts: list[str],
    *,
    has_rate: bool,
) -> Changes:
    """Return the change that adds starred parts, or a group with the optimizer's options."""
    codes = [f"*{one}" if one.endswith(")") else one for one in parts]
    if all(isinstance(one.value, cst.Dict) for one in elements):
        if not has_rate:
            return {}
        inner = parts[0] if len(parts) == 1 and parts[0].endswith(")") else f"[{', '.join(codes)}]"
        codes = [f'{{"params": {inner}}}']
    elif not all(isinstance(one, cst.StarredElement) for one in elements):
        return {}
    example = cst.ensure_type(cst.parse_expression(f"[{', '.join(codes)}]"), cst.List)
    # The comma behind the last element, if there is one, stays behind the last.
    last = elements[-1]
    before, more = [*elements[:-1]], [*example.elements]
    between = before[-1].comma if before else cst.MaybeSentinel.DEFAULT
    middle = [last, *more[:-1]]
    added = [one.with_changes(comma=between) for one in middle]
    return {
        value: value.with_changes(
            elements=[*before, *added, more[-1].with_changes(comma=last.comma)]
        )
    }


def _has_rate(call: cst.Call) -> bool:
    """Return whether an optimizer has a learning rate for groups without one."""
    named = any(one.keyword is not None and one.keyword.value == "lr" for one in call.args)
    return named or len([one for one in call.args if one.keyword is None]) > 1


def _missing(
    source: SourceFile, call: cst.Call, finding: Finding, context: RuleContext
) -> list[str]:
    """Return code for the parameters of a finding, module by module; nothing if it is unclear."""
    names = set(finding.parameters)
    tops: list[str] = []
    paths = dict.fromkeys(one.path for one in context.recording.modules)
    # The outermost modules come first: what they hold needs no mention.
    for path in sorted(paths, key=lambda one: one.count(".")):
        own = _names_under(context, path)
        if own and own <= names:
            tops.append(path)
            names -= own
    codes = [_code(source, call, context, path) for path in tops]
    single = [_code(source, call, context, name) for name in sorted(names)]
    known = [one for one in (*codes, *single) if one is not None]
    if len(known) < len(codes) + len(single) or "" in tops:
        return []
    return [*(f"{one}.parameters()" for one in known[: len(codes)]), *known[len(codes) :]]


def _names_under(context: RuleContext, path: str) -> set[str]:
    prefix = f"{path}." if path else ""
    return {one.name for one in context.recording.parameters if one.name.startswith(prefix)}


def _code(source: SourceFile, call: cst.Call, context: RuleContext, path: str) -> str | None:
    """Return how the code where an optimizer is made names a module or parameter."""
    paths = {one.path for one in context.recording.modules}
    found = {
        code
        for owner in _owners(source, call)
        for code in _relative(source.code(owner), path, paths)
    }
    code = only(found)
    return code if code is not None and is_known(source, call, code.split(".")) else None


def is_known(source: SourceFile, call: cst.Call, parts: list[str]) -> bool:
    """Return whether a call can use a variable, or an attribute that its class assigns."""
    scope, kind = source.scope(call), source.around(call, cst.ClassDef)
    if scope is None or not scope[parts[0]] or not all(one.isidentifier() for one in parts):
        return False
    if parts[0] != "self" or kind is None:
        return True
    stored = (
        source.code(node)
        for target in source.inside(kind, cst.AssignTarget)
        for node in source.inside(target.target, cst.Attribute)
    )
    return ".".join(parts[:2]) in stored


def _owners(source: SourceFile, call: cst.Call) -> list[cst.BaseExpression]:
    """Return the objects whose parameters are used in the function that makes an optimizer."""
    outer = source.around(call, cst.FunctionDef) or source.module
    named = [
        one.func.value
        for one in source.inside(outer, cst.Call)
        if isinstance(one.func, cst.Attribute) and one.func.attr.value == "named_parameters"
    ]
    given = [owner_of_all(one) for one in source.inside(outer, cst.Call)]
    return [*named, *(one for one in given if one is not None)]


def _relative(owner: str, path: str, paths: Iterable[str]) -> list[str]:
    """Return code for a path, if an expression is known to stand for the module around it."""
    found = []
    last = owner.rpartition(".")[2]
    for known in paths:
        head, _, tail = known.rpartition(".")
        if tail != last and known:
            continue
        if known == "":  # the model itself has no name
            found += [f"{owner}.{path}"] if "." not in owner else []
        elif path.startswith(f"{known}."):
            found.append(owner + path.removeprefix(known))
        elif not head or path.startswith(f"{head}."):
            before = owner.rpartition(".")[0]
            rest = path.removeprefix(f"{head}.") if head else path
            found.append(f"{before}.{rest}" if before else rest)
    return found
