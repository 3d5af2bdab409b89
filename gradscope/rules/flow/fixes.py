"""Edits of what shrinks, breaks or enlarges gradients and updates."""

from collections.abc import Iterable, Iterator, Mapping

import libcst as cst

from gradscope.rules.fix import Edits, FixContext
from gradscope.rules.helpers.non_finite.gradient_breaks import plain_name
from gradscope.source_edits.optimizers import optimizer_call, resolved
from gradscope.source_edits.source_file import Changes, SourceFile, in_place_of, only, operand
from gradscope.source_edits.variables import literal_of, number_code, spelled

_INITIALISATIONS = ("kaiming_normal_", "xavier_normal_", "orthogonal_")
_FUNCTIONS = ("sigmoid", "tanh")
_LAYERS = ("Sigmoid", "Tanh")
_ACTIVATIONS = (
    ("relu", "ReLU", "kaiming_normal_"),
    ("gelu", "GELU", "kaiming_normal_"),
    ("tanh", "Tanh", "xavier_normal_"),
)
"""Function, layer and the initialisation that suits them."""


def level_gradient(fix: FixContext) -> Iterator[Edits]:
    """Change the initialisation, the activation, or add a normalisation."""
    source = fix.source
    lines = [fix.line]
    lines += [one.line for one in fix.finding.related if one.file == source.path]
    changes = [
        *_initialised(source, lines),
        *_activated(source, fix.line),
        *_normalised(source, lines),
    ]
    yield from map(source.edits, changes)


def _initialised(source: SourceFile, lines: list[int]) -> Iterator[Changes]:
    """Yield the changes of the only initialisation on the lines, or of all those of their class."""
    found = [call for line in lines for call in source.on_line(line, cst.Call)]
    # Lines may be the same one: each call counts once.
    calls = _initialisations(source, {id(one): one for one in found}.values())
    if not calls:
        kind = source.around(source.statements(lines[0])[0], cst.ClassDef)
        calls = [] if kind is None else _initialisations(source, source.inside(kind, cst.Call))
    elif len(calls) > 1:
        return
    if not calls or len({source.code(one.func) for one in calls}) > 1:
        return
    for name in _INITIALISATIONS:
        yield {one: _with_initialiser(one, name) for one in calls}


def _initialisations(source: SourceFile, calls: Iterable[cst.Call]) -> list[cst.Call]:
    """Return the calls of `torch.nn.init` that draw weights."""
    return [
        one
        for one in calls
        if isinstance(one.func, cst.Attribute) and one.args
        if source.qualified(one.func).startswith("torch.nn.init.")
        if one.func.attr.value not in ("constant_", "ones_", "zeros_")
    ]


def _with_initialiser(call: cst.Call, name: str) -> cst.Call:
    weight = call.args[0].with_changes(
        comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=call.args[-1].whitespace_after_arg
    )
    function = cst.ensure_type(call.func, cst.Attribute).with_changes(attr=cst.Name(name))
    return call.with_changes(func=function, args=[weight])


def _activated(source: SourceFile, line: int) -> Iterator[Changes]:
    """Yield the changes of the activation on a line, alone and with an initialisation."""
    old = list(_activations(source, line))
    kinds = {source.code(one).rpartition(".")[2].lower() for one in old}
    if len(kinds) != 1:
        return
    initialised = _with_initialisation(source, line)
    for function, layer, initialisation in _ACTIVATIONS:
        if function in kinds:
            continue
        changes: dict[cst.CSTNode, cst.CSTNode] = {}
        for one in old:
            new = _renamed(source, one, function, layer)
            if new is not None:
                changes[one] = new
        if len(changes) == len(old):
            yield changes
            if initialised is not None:
                yield {**changes, **initialised(initialisation)}


def _activations(source: SourceFile, line: int) -> Iterator[cst.BaseExpression]:
    """Yield the functions of sigmoids or tanhs on a line, or of the layers of its list."""
    for call in source.on_line(line, cst.Call):
        name = source.qualified(call.func)
        of_torch = [f"torch.{one}" for one in _FUNCTIONS]
        of_torch += [f"torch.nn.functional.{one}" for one in _FUNCTIONS]
        of_torch += [f"torch.nn.{one}" for one in _LAYERS]
        is_method = not name and not call.args and _is_method(call.func)
        if name in of_torch or is_method:
            yield call.func


def _is_method(function: cst.BaseExpression) -> bool:
    return isinstance(function, cst.Attribute) and function.attr.value in _FUNCTIONS


def _renamed(
    source: SourceFile, old: cst.BaseExpression, function: str, layer: str
) -> cst.BaseExpression | None:
    name = source.qualified(old)
    if not name:  # a method of a tensor
        # Tensors have no method `gelu`.
        is_method = isinstance(old, cst.Attribute) and function in ("relu", "tanh")
        return old.with_changes(attr=cst.Name(function)) if is_method else None
    is_layer = name.rpartition(".")[2] in _LAYERS
    full = f"torch.nn.{layer}" if is_layer else f"torch.{function}"
    if function == "gelu" and not is_layer:
        full = "torch.nn.functional.gelu"
    spelling = spelled(source, full)
    return None if spelling is None else cst.parse_expression(spelling)


class _Initialisation:
    """Inserts a loop that initialises the layers of `self.layers` behind their assignment."""

    def __init__(self, line: cst.SimpleStatementLine, layers: str, module: str) -> None:
        self._line, self._layers, self._module = line, layers, module

    def __call__(self, name: str) -> Changes:
        code = f"for layer in {self._layers}:\n    {self._module}.{name}(layer.weight)\n"
        loop = cst.parse_statement(code)
        both: list[cst.BaseStatement] = [self._line, loop]
        return {self._line: cst.FlattenSentinel(both)}


def _with_initialisation(source: SourceFile, line: int) -> _Initialisation | None:
    """Return how to initialise the layers over which the loop around a line goes."""
    statement = only(source.statements(line))
    loop = None if statement is None else source.around(statement, cst.For)
    kind = None if loop is None else source.around(loop, cst.ClassDef)
    module = spelled(source, "torch.nn.init")
    if loop is None or kind is None or module is None or not isinstance(loop.iter, cst.Attribute):
        return None
    layers = source.code(loop.iter)
    assigned = only(
        one
        for one in source.inside(kind, cst.Assign)
        if [source.code(target.target) for target in one.targets] == [layers]
    )
    outer = None if assigned is None else source.parent(assigned)
    is_alone = isinstance(outer, cst.SimpleStatementLine) and len(outer.body) == 1
    if not is_alone or not isinstance(outer, cst.SimpleStatementLine):
        return None
    is_initialised = "init." in source.code(kind)
    return None if is_initialised else _Initialisation(outer, layers, module)


def _normalised(source: SourceFile, lines: list[int]) -> Iterator[Changes]:
    """Yield the change that inserts a LayerNorm between each linear layer and its activation."""
    spelling = spelled(source, "torch.nn.LayerNorm")
    calls = {id(one): one for line in lines for one in source.on_line(line, cst.Call)}
    outer = only(
        one
        for one in calls.values()
        if source.qualified(one.func) == "torch.nn.Sequential" and len(one.args) > 2
    )
    if outer is None or spelling is None:
        return
    arguments: list[cst.Arg] = []
    for argument, following in zip(outer.args, [*outer.args[1:], None], strict=True):
        arguments.append(argument)
        width = _width(source, argument)
        if width is not None and following is not None and _is_activation(source, following):
            norm = cst.Call(func=cst.parse_expression(spelling), args=[cst.Arg(width.deep_clone())])
            arguments.append(argument.with_changes(value=norm))
    if len(arguments) > len(outer.args):
        yield {outer: outer.with_changes(args=arguments)}


def _width(source: SourceFile, argument: cst.Arg) -> cst.BaseExpression | None:
    call = argument.value
    if not isinstance(call, cst.Call) or source.qualified(call.func) != "torch.nn.Linear":
        return None
    plain = [one.value for one in call.args if one.keyword is None and not one.star]
    return plain[1] if len(plain) > 1 else None


def _is_activation(source: SourceFile, argument: cst.Arg) -> bool:
    is_layer = isinstance(argument.value, cst.Call) and not argument.value.args
    name = source.qualified(argument.value.func) if isinstance(argument.value, cst.Call) else ""
    return is_layer and name.startswith("torch.nn.")


_ROOTS = ("sqrt", "rsqrt")
_LOGARITHMS = ("log", "log2", "log10")
_EDGES = ("acos", "asin", "atanh", "erfinv", "arccos", "arcsin", "arctanh")
_DIVISIONS = ("div", "rdiv", "reciprocal", "rtruediv", "truedivide")
_SMALL = "1e-8"
_NOT_NEGATIVE = ("abs", "norm", "sqrt", "std", "var", "vector_norm")
"""Functions whose result a small number may be added to."""


def non_finite_gradient(fix: FixContext) -> Iterator[Edits]:
    """Keep an argument away from the point where a derivative is infinite.

    A small number is added to it, or `torch.where` comes first.
    """
    source, evidence = fix.source, fix.evidence
    if not _has_clear_cause(evidence):
        return
    if "blocked_rows" in evidence:
        yield source.edits(_finite_mask(source, fix.line))
        return
    kind = plain_name(str(evidence["operation"]))
    if kind == "logit":
        yield source.edits(_with_eps(source, fix.line))
        return
    argument = only(_arguments(source, fix.line, kind))
    if argument is None:
        return
    changes = _chosen_before(source, argument)
    if not changes and ("given_norm" in evidence or kind in _DIVISIONS):
        changes = _moved(source, argument, kind, evidence)
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
        # A power of a whole number has a finite derivative at 0.
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
        # 1 - 1e-8 would be 1 in float32.
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


# Half an order of magnitude from each to the next.
_FACTORS = (3, 10, 30, 100)


def update_too_large(fix: FixContext) -> Iterator[Edits]:
    """Divide the learning rate by several factors."""
    source = fix.source
    call = optimizer_call(source, fix.site)
    if call is None:
        return
    named = [one for one in call.args if one.keyword is not None and one.keyword.value == "lr"]
    given = named or call.args[1:2]
    if not given or given[0].star or not (named or given[0].keyword is None):
        return
    rate = literal_of(source, given[0].value)
    used = fix.evidence["learning_rate"]
    if rate is not None and rate.evaluated_value > 0 and _is_same(rate.evaluated_value, used):
        for factor in _FACTORS:
            lower = cst.parse_expression(number_code(rate.evaluated_value / factor))
            yield source.edits({rate: lower})


def _is_same(rate: float, used: float | str | bool | None) -> bool:
    """Return whether the steps used a rate; a schedule uses less of it."""
    return not isinstance(used, float | int) or used <= rate
