"""What is known of the operations that hand on zeros."""

SECOND_DERIVATIVES = {
    "HardsigmoidBackwardBackward": "Hardsigmoid",
    "HardtanhBackwardBackward": "Hardtanh",
    "LeakyReluBackwardBackward": "LeakyReLU",
    "ThresholdBackwardBackward": "ReLU",
}
"""Backward of the backward of activations that are made of straight pieces."""

CAUSES = (
    (("Relu", "Threshold"), "every input of {} is negative, where it passes nothing"),
    (("Clamp", "Hardtanh", "Hardsigmoid", "Hardswish"), "{} cuts off every value at its limits"),
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
    (("Addmm", "Mm", "Bmm", "Conv", "Baddbmm"), "{} multiplies by nothing but zeros"),
)
"""Beginnings of the operation's name, and why it hands zeros on."""

REMEDIES = (
    (
        ("Bernoulli",),
        "let the gradient past the draw, by a straight-through estimator: "
        "`p + (torch.bernoulli(p) - p).detach()`, or use `gumbel_softmax(hard=True)`",
    ),
    (
        ("Normal",),
        "draw by `mean + std * torch.randn_like(std)`, or by `Normal(mean, std).rsample()`",
    ),
    (("Poisson",), "train by the log-probability of what was drawn"),
    (
        ("Relu", "Threshold"),
        "lower the learning rate or the bias, normalise the input, or use LeakyReLU or GELU",
    ),
    (
        ("Round", "Floor", "Ceil", "Trunc", "Sgn", "Sign", "Clamp", "Hard"),
        "let the gradient past it, by a straight-through estimator: `x + ({0}(x) - x).detach()`",
    ),
    (
        ("Tanh", "Sigmoid", "Softmax", "LogSoftmax"),
        "scale its input down: smaller weights, normalisation, or a temperature",
    ),
)
"""Beginnings of the operation's name, and one thing to try."""

WHATEVER_VALUES = (
    *("Round", "Floor", "Ceil", "Trunc", "Sgn", "Sign", "Heaviside", "Bernoulli", "Normal"),
    *SECOND_DERIVATIVES,
)
"""Operations that hand on zeros whatever they are given."""

CUTTING = (
    *("Clamp", "Hardtanh", "Hardsigmoid", "Hardswish", "Relu", "Threshold"),
    *("LogSigmoid", "LogSoftmax", "Sigmoid", "Softmax", "Tanh"),
)
"""Operations that hand on zeros for each value that lies where they are flat."""

ROUTING = ("Mul", "Index", "Where", "Scatter")
"""Operations that leave out what was not chosen."""

FLOORS = ("Relu", "Clamp", "Maximum", "Max", "Threshold")
"""Operations that make a loss of zero of what is good enough."""
