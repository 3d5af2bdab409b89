"""Why an operation of the forward made NaN or infinity, told from what it was given."""

from gradscope.recording.evidence.failures import NonfiniteRecord, OperandRecord
from gradscope.rules.helpers.nonfinite_causes import Cause
from gradscope.rules.helpers.singularities import LARGEST, SINGULARITIES, plain_name

_EXPONENTIALS = frozenset({"cosh", "exp", "exp2", "expm1", "sinh"})
_SPREADS = frozenset({"std", "stdmean", "var", "varmean"})
_BOUNDED = frozenset({"acos", "asin", "atanh", "erfinv"})
_LARGE = 0.1
"""Power of a type's largest number from which operands are large enough to blame them."""
_POSITIVE = frozenset({"log", "log10", "log2", "rsqrt", "sqrt"})


def cause_in_forward(record: NonfiniteRecord) -> Cause:
    """Return why an operation made what is not finite of finite numbers."""
    plain = plain_name(record.operation)
    function = _function(plain, record)
    return (
        _masked_rows(record, function)
        or _constant(record, function)
        or _empty(record, plain, function)
        or _outside(record, plain, function)
        or _singular(record, plain, function)
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
    if plain == "mean" and first is not None and 0 in first.shape.dims:
        return Cause(
            function=function,
            reason=": it is the mean of an empty tensor",
            remedy="skip the term when nothing is selected, or divide a sum by max(count, 1)",
            evidence={"elements": 0},
        )
    if plain.startswith("nllloss") and record.makes == "NaN":
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
        reason=f": its argument is {where} (from {operand.minimum:.3g} to {operand.maximum:.3g})",
        remedy=remedy,
        evidence={"minimum": operand.minimum, "maximum": operand.maximum},
    )


def _singular(record: NonfiniteRecord, plain: str, function: str) -> Cause | None:
    singularity = SINGULARITIES.get(plain)
    if singularity is None or not record.operands:
        return None
    at_zero = record.operands[-1] if function == "division" else record.operands[0]
    if singularity.where.endswith(" 0") and not at_zero.zeros:
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
        magnitude = record.operands[0].maximum
    elif magnitude < largest**_LARGE:
        return None
    evidence = {"operand_maximum": magnitude, "largest": largest}
    reason = (
        f": it overflows {record.dtype}, whose largest number is {largest:.5g}, from operands up "
        f"to {magnitude:.3g}"
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


def _magnitude(operand: OperandRecord) -> float:
    finite = [abs(v) for v in (operand.minimum, operand.maximum) if v == v]
    return max(finite, default=0.0)
