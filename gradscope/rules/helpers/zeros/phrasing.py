"""What zero gradients are called, and the operations that make them."""

import math
import re

from gradscope.recording.evidence.batches import BatchRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.outputs import normalises_alone, normalises_one_feature
from gradscope.rules.helpers.zeros.dead_ends import DeadEnd

SECOND_DERIVATIVES = {
    "HardsigmoidBackwardBackward": "Hardsigmoid",
    "HardtanhBackwardBackward": "Hardtanh",
    "LeakyReluBackwardBackward": "LeakyReLU",
    "ThresholdBackwardBackward": "ReLU",
}
"""Second derivatives of piecewise linear activations."""

CAUSES = (
    (("Relu", "Threshold"), "every input of {} is negative, where its derivative is zero"),
    (("Clamp", "Hardtanh", "Hardsigmoid", "Hardswish"), "{} clamps every value at its limits"),
    (
        ("Round", "Floor", "Ceil", "Trunc", "Sgn", "Sign", "Frac", "Heaviside", "FloorDivide"),
        "the derivative of {} is zero everywhere",
    ),
    (("Bernoulli", "Normal", "Poisson"), "{} draws at random, which has no derivative"),
    (
        ("Tanh", "Sigmoid", "Softmax", "LogSoftmax", "LogSigmoid"),
        "{} is so saturated that its derivative is zero",
    ),
    (("Mul", "Where", "MaskedFill", "Div"), "{} multiplies it by zeros, or masks all of it"),
    (("Addmm", "Mm", "Bmm", "Conv", "Baddbmm"), "{} multiplies by zeros only"),
)
"""Prefixes of operation names, each with the reason for its zeros."""

REMEDIES = (
    (
        ("Bernoulli",),
        "pass the gradient with a straight-through estimator: "
        "`p + (torch.bernoulli(p) - p).detach()`, or use `gumbel_softmax(hard=True)`",
    ),
    (
        ("Normal",),
        "use `mean + std * torch.randn_like(std)` or `Normal(mean, std).rsample()`",
    ),
    (("Poisson",), "train on the log-probability of the sample"),
    (
        ("Relu", "Threshold"),
        "raise the bias, lower the learning rate, normalise the input, or use LeakyReLU or GELU",
    ),
    (
        ("Round", "Floor", "Ceil", "Trunc", "Sgn", "Sign", "Clamp", "Hard"),
        "pass the gradient with a straight-through estimator: `x + ({0}(x) - x).detach()`",
    ),
    (
        ("Tanh", "Sigmoid", "Softmax", "LogSoftmax"),
        "scale its input down: smaller weights, normalisation, or a temperature",
    ),
)
"""Prefixes of operation names, each with one remedy to try."""

WHATEVER_VALUES = (
    *("Round", "Floor", "Ceil", "Trunc", "Sgn", "Sign", "Heaviside", "Bernoulli", "Normal"),
    *SECOND_DERIVATIVES,
)
"""Operations that return zero gradients for every input."""

CUTTING = (
    *("Clamp", "Hardtanh", "Hardsigmoid", "Hardswish", "Relu", "Threshold"),
    *("LogSigmoid", "LogSoftmax", "Sigmoid", "Softmax", "Tanh"),
)
"""Operations that return a zero gradient wherever they are flat."""

ROUTING = ("Mul", "Index", "Where", "Scatter")
"""Operations that drop elements that were not chosen."""

FLOORS = ("Relu", "Clamp", "Maximum", "Max", "Threshold")
"""Operations with a minimum, which make the loss zero for good enough outputs."""


ALONE = "each element is normalised by itself, which always gives the bias"
"""Why no gradient passes a normalisation whose groups have one element."""
REMEDY_OF_ALONE = "normalise over several elements: fewer groups, or the dimension of the features"

_LARGER_BATCH = "use a batch of several examples: with a single one this may be by chance"


def why(context: RuleContext, end: DeadEnd) -> str:
    """Return what makes the gradient zero."""
    operation = _function(end.node.operation)
    if end.cancelled is not None:
        here = end.site is not None and end.cancelled.line == end.site.line
        of = "the two uses on this line" if here else f"this line and line {end.cancelled.line}"
        return f"the gradients through {of} cancel"
    if end.zeros:
        return _why_of_zeros(context, end, operation)
    if end.underflows:
        return f"the gradient at {operation} is so small that its products underflow to zero"
    if end.calls_from_zero:
        return f"each of the {end.calls_from_zero} calls of the cell gets a hidden state of zeros"
    if end.in_recurrent_layer:
        return "the only step that the loss uses starts from a zero hidden state"
    return _why_of_values(context, end, operation)


def _why_of_values(context: RuleContext, end: DeadEnd, operation: str) -> str:
    if activation := twice_differentiated(end):
        return f"the loss takes a second derivative, and that of {activation} is zero everywhere"
    if is_of_one_row(context, end):
        return f"{operation}{_after(context, end)} passes no gradient for the batch's only example"
    if end.is_over_one_element:
        always = 0 if operation.startswith("log") else 1
        return f"{operation} over a dimension of one element is always {always}"
    if end.node.index in normalises_alone(context):
        return ALONE
    for beginnings, text in CAUSES:
        if end.node.operation.startswith(beginnings):
            return text.format(f"{operation}{_after(context, end)}")
    return f"{operation} passes no gradient"


def _why_of_zeros(context: RuleContext, end: DeadEnd, operation: str) -> str:
    records = [context.recording.parameters[zero] for zero in end.zeros]
    names = [record.name for record in records]
    listed = f"{names[0]} and {len(names) - 1} more" if len(names) > 2 else " and ".join(names)
    if not records[0].requires_grad:
        return f"{operation} multiplies by {listed}, frozen at zero"
    starts, them = ("starts", "it") if len(names) == 1 else ("start", "them")
    return f"{listed} {starts} at zero, and so does the other factor of {them}"


def _after(context: RuleContext, end: DeadEnd) -> str:
    """Return the module that provides the operation's input, if it is another one."""
    givers = (
        context.recording.nodes[ref.node] for ref in context.successors.get(end.node.index, ())
    )
    modules = {context.module_of(node) for node in givers} - {context.module_of(end.node), None, ""}
    return f" after {modules.pop()}" if len(modules) == 1 else ""


def _function(operation: str) -> str:
    """Return an operation as Python spells it: `log_softmax` for `LogSoftmaxBackward0`."""
    name = re.sub(r"Backward\d*$", "", operation)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def remedy(context: RuleContext, end: DeadEnd) -> str:
    """Return one thing to try."""
    if is_of_one_row(context, end):
        return _LARGER_BATCH
    if end.cancelled is not None:
        return (
            "compute one of the two terms without gradients, such as an old log-probability under "
            "`no_grad` before the update"
        )
    if end.zeros:
        return "initialise all but one factor of a product randomly"
    if end.underflows:
        return (
            "find where the gradient shrinks before this point: flat activations, small weights, "
            "or a small factor on the loss"
        )
    if end.calls_from_zero:
        return "hand the state that a call returns to the next: make the zeros before the loop"
    if end.in_recurrent_layer:
        return "use every step's output or the final hidden state, not the output at one position"
    return _remedy_of_operation(context, end)


def _remedy_of_operation(context: RuleContext, end: DeadEnd) -> str:
    operation = end.node.operation
    if end.is_over_one_element:
        return _remedy_of_softmax(context, end)
    if end.node.index in normalises_alone(context):
        return REMEDY_OF_ALONE
    if activation := twice_differentiated(end):
        return f"use tanh, SiLU or softplus instead of {activation}"
    for beginnings, text in REMEDIES:
        if operation.startswith(beginnings):
            return text.format(_function(operation))
    return "check its input values and its mask"


def _remedy_of_softmax(context: RuleContext, end: DeadEnd) -> str:
    if normalises_one_feature(context, end.node):
        return "use sigmoid for one output, or binary_cross_entropy_with_logits on its input"
    return "apply softmax over the dimension of the choices"


def is_of_one_row(context: RuleContext, end: DeadEnd) -> bool:
    """Return whether the zeros come of the values of a batch of a single example.

    A layer may be shut for one example and open for the next, and a softmax over the batch has
    nothing to choose from.
    """
    batches = context.recording.evidence_of(BatchRecord)
    shape = end.node.outputs[0] if end.node.outputs else None
    return (
        any(batch.is_one_example for batch in batches)
        and shape is not None
        # All dimensions but the last have one element: the operation has one row of values, and no
        # second example.
        and math.prod(shape.dims[:-1]) == 1
        # Weights that start at zero, and operations without a derivative, give zeros for every
        # batch.
        and not end.zeros
        and not (end.is_over_one_element and normalises_one_feature(context, end.node))
        and not end.node.operation.startswith(WHATEVER_VALUES)
    )


def twice_differentiated(end: DeadEnd) -> str | None:
    """Return the activation whose second derivative hands the zeros on."""
    kinds = SECOND_DERIVATIVES.items()
    return next((name for kind, name in kinds if end.node.operation.startswith(kind)), None)
