"""Edits of losses: shapes of their operands, and normalisations before them."""

from collections import Counter
from collections.abc import Iterator, Sequence

import libcst as cst

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import ComparisonRecord
from gradscope.rules.fix import Edits, FixContext
from gradscope.rules.loss.loss_broadcast import SqueezedDimension, squeezed_dimension
from gradscope.rules.loss.normalised_twice import LAYER
from gradscope.source_edits.calls import without_argument, without_operation
from gradscope.source_edits.source_file import Changes, SourceFile, in_place_of, method_call, only
from gradscope.source_edits.statements import line_of
from gradscope.source_edits.variables import reads_behind

_OPERATORS = {"sub": cst.Subtract, "mul": cst.Multiply}


def loss_broadcast(fix: FixContext) -> Iterator[Edits]:
    """Squeeze the operand with one dimension too many.

    If that is not enough, the other operand gets the dimension for all statements that follow if it
    is an argument; otherwise the operand is squeezed wherever the statement has it.
    """
    source, context = fix.source, fix.context
    wanted = {
        (one.operation, squeezed_dimension(one.left.dims, one.right.dims))
        for one in context.recording.evidence_of(ComparisonRecord)
        if context.site(one.site) == fix.site
    }
    if len(wanted) != 1:
        return
    ((operation, dimension),) = wanted
    call = only(_comparisons(source, fix.line, operation))
    operands = None if call is None else _operands(call)
    if dimension is None or operands is None:
        return
    operand, other = operands if dimension.is_of_first else reversed(operands)
    yield source.edits(_squeezed(source, [operand], dimension))
    # The other edits are tried if a run with this one still has the finding.
    statement = source.statement_of(operand)
    if statement is not None and _is_argument(source, statement, other):
        name = source.code(other)
        added = line_of(f"{name} = {name}.unsqueeze({dimension.position})").body[0]
        yield source.edits(source.inserted_before(statement, added))
    alike = [] if statement is None else _alike(source, statement, operand)
    if len(alike) > 1:
        yield source.edits(_squeezed(source, alike, dimension))


def _is_argument(
    source: SourceFile, statement: cst.BaseSmallStatement, value: cst.BaseExpression
) -> bool:
    """Return whether a value is an argument of the function that a statement is a part of."""
    # In a loop, a reassignment would add a dimension in every pass.
    function = source.around(statement, cst.FunctionDef, cst.For, cst.While, cst.Lambda)
    if not isinstance(function, cst.FunctionDef) or not isinstance(value, cst.Name):
        return False
    return value.value in [one.name.value for one in function.params.params]


def _alike(
    source: SourceFile, statement: cst.BaseSmallStatement, operand: cst.BaseExpression
) -> list[cst.BaseExpression]:
    """Return the values of a statement that read as an operand does."""
    targets = [*source.inside(statement, cst.AssignTarget)]
    assigned = {id(one) for target in targets for one in source.inside(target, type(operand))}
    read = source.inside(statement, type(operand))
    return [one for one in read if id(one) not in assigned and one.deep_equals(operand)]


def _squeezed(
    source: SourceFile, operands: Sequence[cst.BaseExpression], dimension: SqueezedDimension
) -> dict[cst.CSTNode, cst.CSTNode]:
    return {
        old: in_place_of(source, old, method_call(old, "squeeze", str(dimension.position)))
        for old in operands
    }


_Comparison = cst.Call | cst.BinaryOperation


def _comparisons(source: SourceFile, line: int, operation: str) -> list[_Comparison]:
    """Return the calls and operators on a line that may be the comparison."""
    operator = _OPERATORS.get(operation)
    operations = [] if operator is None else source.on_line(line, cst.BinaryOperation)
    found = [one for one in operations if isinstance(one.operator, operator or ())]
    return [*found, *_calls(source, line, operation)]


def _calls(source: SourceFile, line: int, operation: str) -> list[cst.Call]:
    """Return calls of a function by its name; else all with two tensors, such as a loss module."""
    calls = source.on_line(line, cst.Call)
    named = [one for one in calls if _last_name(one.func) == operation]
    if named or operation in _OPERATORS:
        return named
    return [one for one in calls if _operands(one) is not None]


def _last_name(function: cst.BaseExpression) -> str:
    name = function.attr if isinstance(function, cst.Attribute) else function
    return name.value if isinstance(name, cst.Name) else ""


def _operands(
    comparison: _Comparison,
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    if isinstance(comparison, cst.BinaryOperation):
        return comparison.left, comparison.right
    # `loss(*pair)` does not show which value is which operand.
    if any(one.star for one in comparison.args):
        return None
    named = {one.keyword.value: one.value for one in comparison.args if one.keyword is not None}
    plain = [one.value for one in comparison.args if one.keyword is None]
    owner = comparison.func.value if isinstance(comparison.func, cst.Attribute) else None
    # `a.sub(b)` has its first operand before the dot; another method of one argument compares
    # nothing.
    if owner is not None and len(comparison.args) == len(plain) == 1:
        return (owner, plain[0]) if _last_name(comparison.func) in _OPERATORS else None
    first = plain[0] if plain else named.get("input")
    second = plain[1] if len(plain) > 1 else named.get("target")
    return None if first is None or second is None else (first, second)


_LAYERS = {
    "softmax": ("Softmax", "Softmax2d"),
    "sigmoid": ("Sigmoid",),
    "relu": ("ReLU",),
    "log_softmax": ("LogSoftmax",),
}
_OF_LOGARITHMS = ("nll_loss", "kl_div", "ctc_loss")
_FUNCTIONAL = "torch.nn.functional"
_FOR_LOGITS = {
    "torch.nn.functional.nll_loss": "cross_entropy",
    "torch.nn.NLLLoss": "CrossEntropyLoss",
}
"""Loss functions of log-probabilities, and the name of the one that takes logits."""


def normalised_twice(fix: FixContext) -> Iterator[Edits]:
    """Remove the first of two normalisations, take its logarithm, or add one that is missing."""
    source, evidence = fix.source, fix.evidence
    if "first" not in evidence:
        yield from _along_classes(source, fix.line, str(evidence["operation"]))
        return
    first, second = str(evidence["first"]), str(evidence["second"])
    if (first, second) == (LAYER, "nll_loss"):
        yield source.edits(_of_logits(source))
        return
    takes_logarithm = second in _OF_LOGARITHMS
    # Of these, the exponentials of `log_softmax` alone sum to one, as such a loss expects.
    if takes_logarithm and first != "softmax":
        return
    layers = {path.rpartition(".")[2] for path in fix.finding.modules}
    found = only(_found(source, fix.line, first, layers))
    if found is None or _is_used_elsewhere(source, fix.line) or _has_several_uses(fix, first):
        return
    yield source.edits(found.with_logarithm() if takes_logarithm else found.removed())


def _along_classes(source: SourceFile, line: int, operation: str) -> Iterator[Edits]:
    """Yield the edits of a normalisation's dimension to the last one, and to the second one.

    The run tells which of them holds the classes.
    """
    dimensions = [
        one
        for call in source.on_line(line, cst.Call)
        if (one := _dimension(source, call, operation)) is not None
    ]
    dimension = only(dimensions)
    if dimension is None:
        return
    for number in ("-1", "1"):
        if source.code(dimension) != number:
            yield source.edits({dimension: cst.parse_expression(number)})


def _dimension(source: SourceFile, call: cst.Call, operation: str) -> cst.BaseExpression | None:
    """Return the number of a normalisation's dimension; None for another call."""
    name = source.qualified(call.func)
    is_function = name in (f"torch.{operation}", f"torch.nn.functional.{operation}")
    is_layer = name in {f"torch.nn.{one}" for one in _LAYERS.get(operation, ())}
    is_attribute = not name and isinstance(call.func, cst.Attribute)
    is_method = is_attribute and source.code(call.func).rpartition(".")[2] == operation
    if not (is_function or is_layer or is_method):
        return None
    position = 1 if is_function else 0
    plain = [one.value for one in call.args if one.keyword is None and not one.star]
    named = [
        one.value
        for one in call.args
        if one.keyword is not None and one.keyword.value in ("dim", "axis")
    ]
    given = only([*plain[position : position + 1], *named])
    is_number = given is not None and source.code(given).lstrip("-").isdigit()
    return given if is_number else None


def _of_logits(source: SourceFile) -> Changes:
    """Return the change of `nll_loss` to `cross_entropy`, which takes logits.

    Empty if the file has several, such as another one for the evaluation.
    """
    call = only(one for one in source.all(cst.Call) if source.qualified(one.func) in _FOR_LOGITS)
    if call is None or not isinstance(call.func, cst.Attribute):
        return {}
    return {call.func.attr: cst.Name(_FOR_LOGITS[source.qualified(call.func)])}


def _is_used_elsewhere(source: SourceFile, line: int) -> bool:
    """Return whether a variable that the line assigns is used more than once behind it.

    Other uses than the loss may need probabilities.
    """
    for statement in source.on_line(line, cst.Assign):
        for target in statement.targets:
            uses = reads_behind(source, statement, source.code(target.target))
            if len(uses) > 1:
                return True
    return False


def _has_several_uses(fix: FixContext, first: str) -> bool:
    """Return whether the loss depends on the normalised tensor in several ways."""
    # The node of `log_softmax` is `LogSoftmaxBackward0`.
    recording, operation = fix.context.recording, first.replace("_", "")
    nodes = {
        node.index
        for node in recording.nodes
        if fix.context.site(node.site) == fix.site and operation in node.operation.lower()
    }
    uses = Counter(edge.target for edge in recording.edges if edge.target in nodes)
    return any(number > 1 for number in uses.values())


def _found(source: SourceFile, line: int, first: str, layers: set[str]) -> Iterator["_Found"]:
    """Yield all calls on a line that may be the first normalisation."""
    of_torch = (f"torch.{first}", f"torch.nn.functional.{first}")
    for call in source.on_line(line, cst.Call):
        name = source.qualified(call.func)
        if name in of_torch:
            value = _tensor(call)
            yield from () if value is None else (_Applied(source, call, call, value),)
        elif name in {f"torch.nn.{name}" for name in _LAYERS[first]}:
            yield from _made(source, call)
        elif not name and isinstance(call.func, cst.Attribute):
            yield from _of_method(source, call, call.func, first, layers)


def _made(source: SourceFile, call: cst.Call) -> Iterator["_Found"]:
    """Yield a layer that is called where it is made, or is in an `nn.Sequential`."""
    parent = source.parent(call)
    if isinstance(parent, cst.Call) and parent.func is call and parent.args:
        yield _Applied(source, parent, call, parent.args[0].value)
        return
    outer = source.parent(parent)
    if isinstance(parent, cst.Arg) and isinstance(outer, cst.Call):
        is_sequential = source.qualified(outer.func) == "torch.nn.Sequential"
        yield from (_Layer(source, call, parent, outer),) if is_sequential else ()


def _of_method(
    source: SourceFile, call: cst.Call, function: cst.Attribute, first: str, layers: set[str]
) -> Iterator["_Found"]:
    """Yield a call such as `x.softmax(-1)`, or of a layer by its name, as `self.softmax(x)`."""
    if function.attr.value in layers and _is_self(function.value) and len(call.args) == 1:
        yield _Applied(source, call, _maker(source, function), call.args[0].value)
    # `self.softmax(x)` is a method or a layer of the model, and not one of a tensor.
    elif function.attr.value == first and not _is_self(function.value):
        yield _Applied(source, call, call, function.value)


def _maker(source: SourceFile, layer: cst.Attribute) -> cst.Call | None:
    """Return the call that makes a layer which is used once; None if there are several."""
    name = source.code(layer)
    named = [one for one in source.all(cst.Attribute) if source.code(one) == name]
    made = only(
        one.value
        for one in source.all(cst.Assign)
        if [source.code(target.target) for target in one.targets] == [name]
    )
    # One occurrence makes the layer and one calls it. Another call may need what would be removed.
    return made if isinstance(made, cst.Call) and len(named) == 2 else None


def _is_self(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and node.value == "self"


def _tensor(call: cst.Call) -> cst.BaseExpression | None:
    """Return the input of a function."""
    for one in call.args:
        if not one.star and (one.keyword is None or one.keyword.value == "input"):
            return one.value
    return None


@dataclass(frozen=True, slots=True)
class _Applied:
    """A normalisation that is applied to a tensor."""

    source: SourceFile
    whole: cst.Call
    """The call that returns the normalised tensor."""
    named: cst.Call | None
    """The call whose function names the normalisation; None for a layer of unknown origin."""
    value: cst.BaseExpression

    def removed(self) -> Changes:
        """Replace it by its input."""
        return without_operation(self.source, self.whole, self.value)

    def with_logarithm(self) -> Changes:
        """Replace softmax by log_softmax."""
        return {} if self.named is None else _renamed(self.named)


@dataclass(frozen=True, slots=True)
class _Layer:
    """A normalisation that is a layer of an `nn.Sequential`."""

    source: SourceFile
    call: cst.Call
    argument: cst.Arg
    outer: cst.Call

    def removed(self) -> Changes:
        """Take the layer out of the list."""
        arguments = self.outer.args
        # An `nn.Sequential` without its only layer would be empty.
        if len(arguments) < 2:
            return {}
        return {
            self.outer: self.outer.with_changes(args=without_argument(arguments, self.argument))
        }

    def with_logarithm(self) -> Changes:
        """Replace softmax by log_softmax."""
        return _renamed(self.call)


_Found = _Applied | _Layer


def _renamed(call: cst.Call) -> Changes:
    """Return the change of the last part of a function's name to that of the logarithm."""
    name = call.func.attr if isinstance(call.func, cst.Attribute) else None
    names = {"softmax": "log_softmax", "Softmax": "LogSoftmax"}
    if name is None or name.value not in names:
        return {}
    return {name: cst.Name(names[name.value])}
