"""Why an operation's backward makes NaN or infinity: the classic causes, told apart."""

from collections.abc import Mapping
from dataclasses import dataclass

from gradscope.recording.evidence.forward import ForwardStat
from gradscope.recording.records import GradientStat, NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.gradient_breaks import (
    GradientBreak,
    forward_inputs,
    forward_stats,
    is_singular,
)
from gradscope.rules.helpers.singularities import LARGEST, SINGULARITIES, Singularity, plain_name

_WHERE_DIVISION = (
    "make the denominator safe before the division: a / torch.where(ok, b, 1). where() after the "
    "division only selects values, and its backward multiplies 0 by infinity"
)
_WHERE = (
    "make the argument safe before {function}: {function}(torch.where(ok, x, 1)). where() after it "
    "only selects values, and its backward multiplies 0 by infinity"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why an operation makes what is not finite."""

    function: str
    """Name of the function as users write it."""
    reason: str
    """Goes on after what was made; empty where nothing more is known."""
    remedy: str
    evidence: Mapping[str, float | str | bool | None]
    by_growth: bool = False
    """Whether numbers grew until they did not fit into their type."""


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
    """Return the remedy for an operation whose result `torch.where` chooses from, else None."""
    if not any(user.operation.startswith("WhereBackward") for user in context.consumers(node)):
        return None
    return _WHERE_DIVISION if function == "division" else _WHERE.format(function=function)


def _overflow(context: RuleContext, one: GradientBreak, function: str) -> Cause | None:
    """Return the cause of a gradient that has outgrown its type."""
    taken = [
        context.recording.nodes[ref.node].outputs[ref.slot]
        for ref in context.successors.get(one.node.index, ())
    ]
    shapes = [shape for shape in (*one.node.outputs, *taken) if shape and shape.dtype in LARGEST]
    if not shapes:
        return None
    dtype = min((shape.dtype for shape in shapes), key=LARGEST.__getitem__)
    largest = LARGEST[dtype]
    maximum = one.given.absolute_maximum
    if maximum is None or not maximum > largest**0.25:
        return None
    return Cause(
        function=function,
        reason=(
            f": it overflows {dtype}, whose largest number is {largest:.5g}, from elements "
            f"up to {maximum:.3g}"
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
