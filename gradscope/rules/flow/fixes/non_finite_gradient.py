"""Keeps an argument away from the point where a derivative is infinite."""

from collections.abc import Iterator, Mapping

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.non_finite.gradient_breaks import plain_name
from gradscope.source_edits.imported_names import spelled
from gradscope.source_edits.optimizers import resolved
from gradscope.source_edits.source_file import Changes, SourceFile, in_place_of, only, operand
from gradscope.source_edits.source_files import SourceFiles

_ROOTS = ("sqrt", "rsqrt")
_LOGARITHMS = ("log", "log2", "log10")
_EDGES = ("acos", "asin", "atanh", "erfinv", "arccos", "arcsin", "arctanh")
_DIVISIONS = ("div", "rdiv", "reciprocal", "rtruediv", "truedivide")
_SMALL = "1e-8"
_NOT_NEGATIVE = ("abs", "norm", "sqrt", "std", "var", "vector_norm")
"""Functions whose result a small number may be added to."""


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit of the argument: a small number is added, or `torch.where` comes first."""
    source = files.at(finding.location)
    evidence = dict(finding.evidence)
    if source is None or finding.location is None or not _has_clear_cause(evidence):
        return
    if "blocked_rows" in evidence:
        yield source.edits(_finite_mask(source, finding.location.line))
        return
    kind = plain_name(str(evidence["operation"]))
    if kind == "logit":
        yield source.edits(_with_eps(source, finding.location.line))
        return
    argument = only(_arguments(source, finding.location.line, kind))
    if argument is None:
        return
    changes = _chosen_before(source, argument)
    if not changes and ("given_norm" in evidence or kind in _DIVISIONS):
        changes = _moved(source, argument, kind, evidence)
    if changes:
        yield source.edits(changes)


def _has_clear_cause(evidence: Mapping[str, float | str | bool | None]) -> bool:
    """Return whether backward breaks at the operation, or at its result, which the loss ignores."""
    if "given_norm" in evidence or "blocked_rows" in evidence:
        return True
    return evidence.get("reaches_loss") is False


def _finite_mask(source: SourceFile, line: int) -> Changes:
    """Return the change of the only `-inf` of a function to the smallest number of its tensor."""
    statement = only(source.statements(line))
    function = None if statement is None else source.around(statement, cst.FunctionDef)
    if function is None:
        return {}
    masks = [one for one in source.inside(function, cst.Call) if _is_infinite_mask(source, one)]
    mask = only(masks)
    owner = mask.func.value if mask is not None and isinstance(mask.func, cst.Attribute) else None
    torch = spelled(source, "torch.finfo")
    if mask is None or torch is None or not isinstance(owner, cst.Name | cst.Attribute):
        return {}
    smallest = cst.parse_expression(f"{torch}({source.code(owner)}.dtype).min")
    return {mask.args[1].value: smallest}


def _is_infinite_mask(source: SourceFile, call: cst.Call) -> bool:
    """Return whether a call is `x.masked_fill(mask, -inf)`."""
    if _last_name(call.func) not in ("masked_fill", "masked_fill_") or len(call.args) != 2:
        return False
    value = source.code(call.args[1].value).replace("'", '"').replace(" ", "").lower()
    return value in ('float("-inf")', '-float("inf")', "-torch.inf", "-math.inf", "-np.inf")


def _arguments(source: SourceFile, line: int, kind: str) -> Iterator[cst.BaseExpression]:
    """Yield what the functions of a kind on a line are applied to."""
    for operation in source.on_line(line, cst.BinaryOperation):
        is_power = isinstance(operation.operator, cst.Power)
        if kind == "pow" and is_power and not isinstance(operation.right, cst.Integer):
            yield operation.left
        if kind in _DIVISIONS and isinstance(operation.operator, cst.Divide):
            yield operation.right
    for call in source.on_line(line, cst.Call):
        if _last_name(call.func) not in _names(kind):
            continue
        if source.qualified(call.func).startswith("torch."):
            plain = [one.value for one in call.args if one.keyword is None and not one.star]
            number = 1 if kind in _DIVISIONS else 0
            yield from plain[number : number + 1]
        elif isinstance(call.func, cst.Attribute) and not source.qualified(call.func):
            is_division = kind in _DIVISIONS
            arguments = [one.value for one in call.args] if is_division else [call.func.value]
            yield from arguments[:1]


def _last_name(function: cst.BaseExpression) -> str:
    name = function.attr if isinstance(function, cst.Attribute) else function
    return name.value if isinstance(name, cst.Name) else ""


def _names(kind: str) -> tuple[str, ...]:
    if kind in _DIVISIONS:
        return ("div", "divide", "true_divide")
    if kind in ("acos", "asin", "atanh"):
        return (kind, f"arc{kind.removeprefix('a')}")
    return (kind,)


def _chosen_before(source: SourceFile, argument: cst.BaseExpression) -> Changes:
    """Return the change of `where(c, f(x), y)` to `where(c, f(where(c, x, 1)), y)`."""
    operation = source.parent(argument)
    while isinstance(operation, cst.Arg | cst.Attribute):
        operation = source.parent(operation)
    holder = source.parent(operation)
    outer = source.parent(holder)
    if not isinstance(holder, cst.Arg) or not isinstance(outer, cst.Call):
        return {}
    if source.qualified(outer.func) != "torch.where" or outer.args[1] is not holder:
        return {}
    condition = outer.args[0].value
    if any(True for _ in source.inside(condition, cst.Call)) and "\n" in source.code(condition):
        return {}
    safe = cst.Call(
        func=outer.func.deep_clone(),
        args=[
            cst.Arg(condition.deep_clone()),
            cst.Arg(argument.with_changes(lpar=[], rpar=[])),
            cst.Arg(cst.Float("1.0")),
        ],
    )
    return {argument: safe}


def _moved(
    source: SourceFile,
    argument: cst.BaseExpression,
    kind: str,
    evidence: dict[str, float | str | bool | None],
) -> Changes:
    """Return the change that adds a small number, or clamps an angle's argument."""
    minimum = evidence.get("minimum")
    if kind in _EDGES:
        clamped = "clamp(-1 + 1e-6, 1 - 1e-6)"
        call = cst.parse_expression(f"x.{clamped}")
        assert isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute)
        function = call.func.with_changes(value=operand(argument))
        return {argument: in_place_of(source, argument, call.with_changes(func=function))}
    if kind in _DIVISIONS:
        is_known = _is_not_negative(source, argument)
    else:
        is_known = isinstance(minimum, float | int) and minimum >= 0
    if not is_known or kind not in (*_ROOTS, *_LOGARITHMS, *_DIVISIONS, "pow"):
        return {}
    moved = cst.BinaryOperation(
        left=_summand(argument), operator=cst.Add(), right=cst.Float(_SMALL)
    )
    return {argument: in_place_of(source, argument, moved)}


def _is_not_negative(source: SourceFile, denominator: cst.BaseExpression) -> bool:
    """Return whether a denominator is the result of a norm, a root or a deviation."""
    value = resolved(source, denominator)
    return isinstance(value, cst.Call) and _last_name(value.func) in _NOT_NEGATIVE


def _with_eps(source: SourceFile, line: int) -> Changes:
    """Return the change that gives `eps` to the only logit of a line."""
    call = only(one for one in source.on_line(line, cst.Call) if _last_name(one.func) == "logit")
    if call is None:
        return {}
    is_function = source.qualified(call.func).startswith("torch.")
    if len(call.args) != int(is_function) or any(one.star or one.keyword for one in call.args):
        return {}
    eps = cst.ensure_type(cst.parse_expression("f(eps=1e-6)"), cst.Call).args[0]
    return {call: call.with_changes(args=[*call.args, eps])}


def _summand(argument: cst.BaseExpression) -> cst.BaseExpression:
    """Return the left side of a sum, without parentheses where it needs none."""
    is_arithmetic = isinstance(argument, cst.BinaryOperation) and isinstance(
        argument.operator, cst.Add | cst.Subtract | cst.Multiply | cst.Divide | cst.Power
    )
    bare = argument.with_changes(lpar=[], rpar=[])
    return bare if is_arithmetic else operand(bare)
