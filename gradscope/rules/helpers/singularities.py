"""Where the functions of torch have no finite value or derivative, and what to write instead."""

from dataclasses import dataclass
from typing import Literal

Sign = Literal["zeros", "nonfinite", "none"]
"""By what the output of an operation tells the elements at which its derivative is infinite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Singularity:
    """A point at which a function or its derivative is not finite."""

    function: str
    """Name of the function as users write it."""
    where: str
    """The point: `its argument is 0`."""
    sign: Sign
    remedy: str


_ADD_INSIDE = "add a small number to the argument, such as {}(x + 1e-8)"
_LOG_REMEDY = (
    "use log_softmax, logsigmoid or a loss with logits instead of the log of a probability, or "
    "add a small number to the argument, such as log(x + 1e-8)"
)
_SAFE_ANGLE = "keep the argument away from 1 and -1, such as with x.clamp(-1 + 1e-6, 1 - 1e-6)"
_NORM_REMEDY = "add a small number under the root: torch.sqrt(x.square().sum(-1) + 1e-8)"
_SPECTRUM = (
    "the gradient needs distinct values: use eigvalsh or svdvals if the vectors are not needed, "
    "or add a small random symmetric matrix"
)
_DIVISION = "add a small number to the denominator, or clamp it from below"


def _zero(function: str, sign: Sign, remedy: str | None = None) -> Singularity:
    return Singularity(
        function=function,
        where="its argument is 0",
        sign=sign,
        remedy=remedy or _ADD_INSIDE.format(function),
    )


def _edge(function: str) -> Singularity:
    return Singularity(
        function=function, where="its argument is 1 or -1", sign="none", remedy=_SAFE_ANGLE
    )


def _spectrum(function: str, values: str) -> Singularity:
    return Singularity(
        function=function, where=f"two {values} are equal", sign="none", remedy=_SPECTRUM
    )


_DIVIDES = Singularity(
    function="division", where="the denominator is 0", sign="nonfinite", remedy=_DIVISION
)

SINGULARITIES: dict[str, Singularity] = {
    "acos": _edge("acos"),
    "asin": _edge("asin"),
    "atanh": _edge("atanh"),
    "erfinv": _edge("erfinv"),
    "atan2": Singularity(
        function="atan2",
        where="both arguments are 0",
        sign="zeros",
        remedy="keep one of the arguments away from 0",
    ),
    "cdist": Singularity(
        function="cdist", where="two points are equal", sign="zeros", remedy=_NORM_REMEDY
    ),
    "div": _DIVIDES,
    "linalgeigh": _spectrum("eigh", "eigenvalues"),
    "linalgeig": _spectrum("eig", "eigenvalues"),
    "linalgsvd": _spectrum("svd", "singular values"),
    "linalgvectornorm": _zero("norm", "zeros", _NORM_REMEDY),
    "log": _zero("log", "nonfinite", _LOG_REMEDY),
    "log10": _zero("log10", "nonfinite", _LOG_REMEDY),
    "log1p": Singularity(
        function="log1p", where="its argument is -1", sign="nonfinite", remedy=_LOG_REMEDY
    ),
    "log2": _zero("log2", "nonfinite", _LOG_REMEDY),
    "logit": Singularity(
        function="logit",
        where="its argument is 0 or 1",
        sign="nonfinite",
        remedy="pass eps, such as torch.logit(p, eps=1e-6), or use the logits directly",
    ),
    "norm": _zero("norm", "zeros", _NORM_REMEDY),
    "pow": _zero("pow", "zeros", "add a small number to the base, such as (x + 1e-8) ** p"),
    "rdiv": _DIVIDES,
    "reciprocal": _DIVIDES,
    "rsqrt": _zero("rsqrt", "nonfinite"),
    "rtruediv": _DIVIDES,
    "sqrt": _zero("sqrt", "zeros"),
    "std": Singularity(
        function="std",
        where="its input is a single number or equal numbers",
        sign="zeros",
        remedy="add 1e-8 to var(...) before the square root, and pass at least two numbers",
    ),
    "truedivide": _DIVIDES,
    "xlogy": _zero("xlogy", "nonfinite", _LOG_REMEDY),
}
"""By the operation's plain name."""

LARGEST = {"float16": 65504.0, "bfloat16": 3.39e38, "float32": 3.4e38, "float64": 1.8e308}
"""The largest finite number of each type."""


def plain_name(operation: str) -> str:
    """Return an operation's name as its backward node and the dispatcher share it.

    `LinalgVectorNormBackward0` and `linalg_vector_norm` are `linalgvectornorm`.
    """
    return operation.partition("Backward")[0].replace("_", "").lower()
