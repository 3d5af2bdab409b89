"""Why an operation makes NaN or infinity, in the forward or in its backward."""

from collections.abc import Mapping

from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.evidence.failures import NonfiniteRecord, OperandRecord
from gradscope.recording.evidence.forward import ForwardStat
from gradscope.recording.records import GradientStat, NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.non_finite.gradient_breaks import (
    LARGEST,
    SINGULARITIES,
    GradientBreak,
    Singularity,
    forward_inputs,
    forward_stats,
    is_singular,
    nonfinite_nodes,
    plain_name,
)

_WHERE_DIVISION = (
    "make the denominator safe before the division: a / torch.where(ok, b, 1). where() after the "
    "division only selects values, and its backward multiplies 0 by infinity"
)
_WHERE = (
    "make the argument safe before {function}: {function}(torch.where(ok, x, 1)). where() after it "
    "only selects values, and its backward multiplies 0 by infinity"
)


_EXPONENTIALS = frozenset({"cosh", "exp", "exp2", "expm1", "sinh"})
_SPREADS = frozenset({"std", "stdmean", "var", "varmean"})
_BOUNDED = frozenset({"acos", "asin", "atanh", "erfinv"})
_LARGE = 0.1
"""Power of a type's largest number above which operands are large enough to be the cause."""
_POSITIVE = frozenset({"log", "log10", "log2", "rsqrt", "sqrt"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The reason why an operation returns a non-finite value."""

    function: str
    """Name of the function as users write it."""
    reason: str
    """Reason, which follows the description of the value; empty if unknown."""
    remedy: str
    evidence: Mapping[str, float | str | bool | None]
    by_growth: bool = False
    """Whether numbers grew until they overflowed their type."""


def what_it_is(gradient: GradientStat) -> str:
    """Return the word for what of a gradient is not finite."""
    return "NaN" if gradient.norm != gradient.norm else "infinity"


def cause_of_break(context: RuleContext, one: GradientBreak) -> Cause:
    """Return why an operation's backward broke a gradient."""
    stats = context.shared(forward_stats)
    node = one.node
    output = stats.get(TensorRef(node=node.index, slot=0))
    inputs = [stats[ref] for ref in forward_inputs(context, node.index) if ref in stats]
    singularity = SINGULARITIES.get(plain_name(node.operation))
    overflow = _overflow(context, one, function_name(node))
    finite = not any(stat.nonfinite for stat in inputs)
    # A large gradient overflows in any function: then the values have to show the singular point.
    if singularity is not None and finite and (overflow is None or is_singular(stats, node)):
        return _singular(context, node, singularity, output, inputs)
    broken = sum(stat.nonfinite for stat in (*inputs, *([output] if output else [])))
    function = function_name(node)
    if finite and inputs and output is not None and output.nonfinite:
        return Cause(
            function=function,
            reason=(
                f": its result is not finite at {output.nonfinite} of {output.numel} elements, and "
                "backward multiplies by it"
            ),
            remedy=remedy_before_where(context, node.index, function)
            or "keep its argument in the range of finite results, such as with clamp(max=...)",
            evidence={"nonfinite_in_forward": output.nonfinite, "maximum": inputs[0].maximum},
        )
    if broken:
        return Cause(
            function=function,
            reason=f": its forward already held {broken} numbers that are not finite",
            remedy="find the forward operation that made them; backward multiplies by them",
            evidence={"nonfinite_in_forward": broken},
        )
    return overflow or _unknown(function)


def function_name(node: NodeRecord) -> str:
    """Return an operation as users know it."""
    singularity = SINGULARITIES.get(plain_name(node.operation))
    if singularity is not None:
        return singularity.function
    base, _, number = node.operation.partition("Backward")
    return _snake(base) if number else base  # a function of the user's own has no number


def _snake(name: str) -> str:
    pieces = [f"_{c.lower()}" if c.isupper() else c for c in name]
    return "".join(pieces).lstrip("_")


def _singular(
    context: RuleContext,
    node: NodeRecord,
    singularity: Singularity,
    output: ForwardStat | None,
    inputs: list[ForwardStat],
) -> Cause:
    evidence: dict[str, float | str | bool | None] = {}
    reason = f": where {singularity.where}, its derivative is infinite"
    if output is not None and singularity.sign != "none":
        count = output.zeros if singularity.sign == "zeros" else output.nonfinite
        if count:
            evidence["singular_elements"] = count
            reason = (
                f": {singularity.where} at {count} of {output.numel} elements, where its "
                "derivative is infinite"
            )
    if inputs:
        evidence |= {"minimum": inputs[0].minimum, "maximum": inputs[0].maximum}
    chosen = remedy_before_where(context, node.index, singularity.function)
    return Cause(
        function=singularity.function,
        reason=reason,
        remedy=chosen or singularity.remedy,
        evidence=evidence,
    )


def remedy_before_where(context: RuleContext, node: int, function: str) -> str | None:
    """Return the remedy for an operation whose result `torch.where` chooses from, else None.

    What was computed from the result counts as the result as long as it is not finite.
    """
    broken, waiting, seen = nonfinite_nodes(context), [node], {node}
    while waiting:
        for user in context.consumers(waiting.pop()):
            if user.operation.startswith("WhereBackward"):
                return (
                    _WHERE_DIVISION if function == "division" else _WHERE.format(function=function)
                )
            if user.index in broken and user.index not in seen:
                seen.add(user.index)
                waiting.append(user.index)
    return None


def _overflow(context: RuleContext, one: GradientBreak, function: str) -> Cause | None:
    """Return the cause of a gradient that has outgrown its type."""
    taken = [
        context.recording.nodes[ref.node].outputs[ref.slot]
        for ref in context.successors.get(one.node.index, ())
    ]
    shapes = [shape for shape in (*one.node.outputs, *taken) if shape and shape.dtype in LARGEST]
    if not shapes:
        return None
    # The type with the smallest range overflows first.
    dtype = min((shape.dtype for shape in shapes), key=LARGEST.__getitem__)
    largest = LARGEST[dtype]
    maximum = one.given.absolute_maximum
    # Four factors of this size reach the limit.
    if maximum is None or not maximum > largest**0.25:
        return None
    return Cause(
        function=function,
        reason=(
            f": it overflows {dtype}, whose largest number is {short(largest, 5)}, from elements "
            f"up to {short(maximum)}"
        ),
        remedy=(
            "compute this part in bfloat16 or float32, or lower the loss scale"
            if dtype == "float16"
            else "make the loss or the weights smaller: the gradient grows during backward"
        ),
        evidence={"given_maximum": maximum, "largest": largest},
        by_growth=True,
    )


def _unknown(function: str) -> Cause:
    return Cause(
        function=function,
        reason="",
        remedy=f"check the backward of {function} and its input: 0, or numbers near the dtype's "
        "limit",
        evidence={},
    )


def cause_in_forward(record: NonfiniteRecord) -> Cause:
    """Return why an operation made non-finite values of finite numbers."""
    plain = plain_name(record.operation)
    # The reasons that say most come first: large operands are one for want of a better.
    function = _function(plain, record)
    return (
        _masked_rows(record, function)
        or _constant(record, function)
        or _empty(record, plain, function)
        or _outside(record, plain, function)
        or _singular_in_forward(record, plain, function)
        or _too_large(record, plain, function)
        or Cause(
            function=function,
            reason="",
            remedy=f"check the input of {function} on this line",
            evidence={},
        )
    )


def _function(plain: str, record: NonfiniteRecord) -> str:
    known = SINGULARITIES.get(plain)
    return known.function if known else record.operation.strip("_")


def _masked_rows(record: NonfiniteRecord, function: str) -> Cause | None:
    rows = record.blocked_rows
    if not rows:
        return None
    are = "1 row is" if rows == 1 else f"{rows} rows are"
    return Cause(
        function=function,
        reason=f": {are} masked with -inf at every position",
        remedy="keep at least one position of every row unmasked, or mask with a large negative "
        "number such as torch.finfo(scores.dtype).min",
        evidence={"blocked_rows": rows},
    )


def _constant(record: NonfiniteRecord, function: str) -> Cause | None:
    if record.source != "constant":
        return None
    return Cause(
        function=function,
        reason=" that the code writes explicitly",
        remedy="write a large finite number instead, or exclude these elements from the loss",
        evidence={},
    )


def _empty(record: NonfiniteRecord, plain: str, function: str) -> Cause | None:
    """Return the cause where too few numbers were given."""
    first = record.operands[0] if record.operands else None
    is_loss = plain.startswith("nllloss")
    if record.makes == "NaN" and first is not None and 0 in first.shape.dims:
        return Cause(
            function="cross_entropy" if is_loss else function,
            reason=": it is the mean of an empty tensor",
            remedy="skip empty batches, and the term when nothing is selected, or divide a sum by "
            "max(count, 1)",
            evidence={"elements": 0},
        )
    if is_loss and record.makes == "NaN":
        return Cause(
            function="cross_entropy",
            reason=": ignore_index excludes every target, and an empty mean is NaN",
            remedy="skip batches without a target, or divide reduction='sum' by max(count, 1)",
            evidence={},
        )
    if plain == "ctcloss":
        return Cause(
            function="ctc_loss",
            reason=": a target is longer than its input allows, with a blank between equal labels",
            remedy="skip such pairs, use longer inputs, or set zero_infinity=True",
            evidence={},
        )
    if plain in _SPREADS and record.makes == "NaN":
        return Cause(
            function=function,
            reason=": its input is a single number without variance",
            remedy="pass at least two numbers, or correction=0",
            evidence={},
        )
    return None


def _outside(record: NonfiniteRecord, plain: str, function: str) -> Cause | None:
    """Return the cause of NaN outside of a function's domain."""
    if not record.operands or record.makes != "NaN":
        return None
    first = record.operands[0]
    if plain in _POSITIVE and first.minimum < 0:
        return _at(first, function, "negative", "clamp the argument from below: x.clamp_min(1e-8)")
    if plain in _BOUNDED and max(-first.minimum, first.maximum) > 1:
        return _at(
            first,
            function,
            "outside -1 to 1",
            "clamp the argument, since rounding may raise a cosine above 1: "
            "x.clamp(-1 + 1e-6, 1 - 1e-6)",
        )
    if plain == "pow" and first.minimum < 0:
        return _at(
            first,
            function,
            "negative under a fractional exponent",
            "use x.abs() or x.clamp_min(1e-8) as the base",
        )
    return None


def _at(operand: OperandRecord, function: str, where: str, remedy: str) -> Cause:
    return Cause(
        function=function,
        reason=f": its argument is {where} "
        f"(from {short(operand.minimum)} to {short(operand.maximum)})",
        remedy=remedy,
        evidence={"minimum": operand.minimum, "maximum": operand.maximum},
    )


def _singular_in_forward(record: NonfiniteRecord, plain: str, function: str) -> Cause | None:
    singularity = SINGULARITIES.get(plain)
    if singularity is None or not record.operands:
        return None
    at_zero = record.operands[-1] if function == "division" else record.operands[0]
    if singularity.needs_zero and not at_zero.zeros:
        return None  # the numbers are too large, or nearly 0
    return Cause(
        function=function,
        reason=f": {singularity.where} at {_elements(at_zero.zeros or record.broken)}",
        remedy=singularity.remedy,
        evidence={"singular_elements": at_zero.zeros or record.broken},
    )


def _elements(count: int) -> str:
    return "1 element" if count == 1 else f"{count} elements"


def _too_large(record: NonfiniteRecord, plain: str, function: str) -> Cause | None:
    largest = LARGEST.get(record.dtype)
    if largest is None or not record.operands:
        return None
    magnitude = max(_magnitude(operand) for operand in record.operands)
    if plain in _EXPONENTIALS:
        # `cosh` and `sinh` overflow at both ends.
        if plain not in ("cosh", "sinh"):
            magnitude = record.operands[0].maximum
    elif magnitude < largest**_LARGE:
        return None
    evidence = {"operand_maximum": magnitude, "largest": largest}
    reason = (
        f": it overflows {record.dtype}, whose largest number is {short(largest, 5)}, from "
        f"operands up "
        f"to {short(magnitude)}"
    )
    if record.dtype == "float16":
        remedy = "compute this part in bfloat16 or float32, or scale its operands down"
    elif plain in _EXPONENTIALS:
        remedy = (
            "use softmax, log_softmax or logsumexp, which subtract the maximum first, or clamp "
            "the argument from above"
        )
    else:
        remedy = "normalise the inputs or the activations: they grow until this line"
    return Cause(function=function, reason=reason, remedy=remedy, evidence=evidence, by_growth=True)


# NaN alone differs from itself.
def _magnitude(operand: OperandRecord) -> float:
    finite = [abs(v) for v in (operand.minimum, operand.maximum) if v == v]
    return max(finite, default=0.0)
