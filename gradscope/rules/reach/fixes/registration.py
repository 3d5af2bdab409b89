"""Edits that register what the model stores in a plain container or attribute."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.evidence.parameters import LeafRecord
from gradscope.recording.finding import Finding
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import Edits, FixContext
from gradscope.rules.reach.fixes.made_in_forward import made_once
from gradscope.rules.reach.unregistered_parameter import leaf_site
from gradscope.source_edits.calls import without_argument
from gradscope.source_edits.source_file import Changes, SourceFile, only, operand
from gradscope.source_edits.variables import spelled

_SEQUENCES = ("list", "tuple")


def unregistered_parameter(fix: FixContext) -> Iterator[Edits]:
    """Register tensors where they are stored, or make them once in `__init__`."""
    source, finding, context = fix.source, fix.finding, fix.context
    if not finding.parameters:
        shapes = _shapes_in_forward(finding, context)
        if shapes:
            yield source.edits(made_once(source, fix.line, shapes))
        return
    leaves = [
        leaf
        for leaf in context.recording.evidence_of(LeafRecord)
        if leaf.name in finding.parameters and leaf.origin in ("attribute", "computed")
    ]
    value = only(_values(source, fix.line, leaves[0].attribute)) if leaves else None
    if value is not None:
        yield source.edits(_changes(source, value, context, leaves))


def _shapes_in_forward(finding: Finding, context: RuleContext) -> list[tuple[int, ...]]:
    """Return the shapes of the parameters that the forward makes at the finding's line."""
    recording = context.recording
    made = [leaf for leaf in recording.evidence_of(LeafRecord) if leaf.origin == "forward"]
    here = [leaf.node for leaf in made if leaf_site(context, leaf) == finding.location]
    shapes = [shape for node in here for shape in recording.nodes[node].outputs]
    return [one.dims for one in shapes if one is not None]


def _values(source: SourceFile, line: int, attribute: str) -> Iterator[cst.BaseExpression]:
    """Yield the values that a line assigns to an attribute of `self`."""
    for plain in source.on_line(line, cst.Assign):
        if len(plain.targets) == 1 and _is_own(plain.targets[0].target, attribute):
            yield plain.value
    for typed in source.on_line(line, cst.AnnAssign):
        if typed.value is not None and _is_own(typed.target, attribute):
            yield typed.value


def _is_own(target: cst.BaseExpression, attribute: str) -> bool:
    return (
        isinstance(target, cst.Attribute)
        and target.attr.value == attribute
        and isinstance(target.value, cst.Name)
        and target.value.value == "self"
    )


def _changes(
    source: SourceFile,
    value: cst.BaseExpression,
    context: RuleContext,
    leaves: list[LeafRecord],
) -> Changes:
    first = leaves[0]
    if first.container in (*_SEQUENCES, "dict"):
        if first.origin == "computed":
            return {}
        if isinstance(value, cst.Dict) and not _has_names(value):
            return {}
        if isinstance(value, cst.List | cst.Tuple) and _has_functions(source, value):
            return {}
        kind = _container(context, leaves)
        return {} if kind is None else _wrapped(source, value, kind, value)
    if first.container == "Tensor":
        return _parameter(source, value)
    return {}


def _has_names(value: cst.Dict) -> bool:
    """Return whether all keys of a dictionary are strings, as registered names must be."""
    keys = [one.key for one in value.elements if isinstance(one, cst.DictElement)]
    strings = (cst.SimpleString, cst.FormattedString, cst.ConcatenatedString)
    return len(keys) == len(value.elements) and all(isinstance(one, strings) for one in keys)


def _has_functions(source: SourceFile, value: cst.List | cst.Tuple) -> bool:
    """Return whether a list has a lambda, a literal or something imported beside its modules."""
    return any(
        isinstance(one.value, cst.Lambda | cst.BaseNumber | cst.BaseString)
        or bool(source.qualified(one.value))
        for one in value.elements
        if not isinstance(one.value, cst.Call)
    )


def _container(context: RuleContext, leaves: list[LeafRecord]) -> str | None:
    """Return the registering container; None if modules and tensors are mixed."""
    kinds = {_is_module(context, leaf) for leaf in leaves}
    if len(kinds) != 1:
        return None
    form = "Dict" if leaves[0].container == "dict" else "List"
    return f"torch.nn.{'Module' if kinds.pop() else 'Parameter'}{form}"


def _is_module(context: RuleContext, leaf: LeafRecord) -> bool:
    """Return whether a leaf belongs to a module of the container, by the length of its name."""
    owner = "" if leaf.owner is None else context.recording.modules[leaf.owner].path
    inner = leaf.name.removeprefix(f"{owner}.").removeprefix(f"{leaf.attribute}.")
    return "." in inner


def _parameter(source: SourceFile, value: cst.BaseExpression) -> Changes:
    """Wrap a tensor; what was computed from a parameter becomes the parameter."""
    inner = [
        call
        for call in source.inside(value, cst.Call)
        if source.qualified(call.func) == "torch.nn.Parameter" or _is_parameter(source, call)
    ]
    if not inner:
        return _wrapped(source, value, "torch.nn.Parameter", _without_requires_grad(value))
    call = only(inner)
    if call is None or len(call.args) != 1 or call is value:
        return {}
    wrapped = value.deep_replace(call, call.args[0].value)
    assert isinstance(wrapped, cst.BaseExpression)
    return _wrapped(source, value, "torch.nn.Parameter", wrapped)


def _is_parameter(source: SourceFile, call: cst.Call) -> bool:
    return source.qualified(call.func) == "torch.nn.parameter.Parameter"


def _without_requires_grad(value: cst.BaseExpression) -> cst.BaseExpression:
    """Return the call that makes a tensor without `requires_grad=True`, its last argument."""
    last = value.args[-1] if isinstance(value, cst.Call) and value.args else None
    if not isinstance(value, cst.Call) or last is None or last.keyword is None:
        return value
    if last.keyword.value != "requires_grad":
        return value
    return value.with_changes(args=without_argument(value.args, last))


def _wrapped(
    source: SourceFile, old: cst.BaseExpression, name: str, argument: cst.BaseExpression
) -> Changes:
    """Return the change of a value to the call of a class of torch."""
    spelling = spelled(source, name)
    if spelling is None:
        return {}
    is_empty = isinstance(argument, cst.List | cst.Dict) and not argument.elements
    # A generator that is the only argument needs no parentheses of its own.
    is_generator = isinstance(argument, cst.GeneratorExp)
    bare = argument.with_changes(lpar=[], rpar=[]) if is_generator else argument
    is_tuple = isinstance(argument, cst.Tuple)
    arguments = [] if is_empty else [cst.Arg(operand(bare) if is_tuple else bare)]
    return {old: cst.Call(func=cst.parse_expression(spelling), args=arguments)}
