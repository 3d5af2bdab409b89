"""The notation of a target's options: their names, `TARGET`, `EXPR` and `SPEC`, without torch."""

import ast
import re
from enum import StrEnum
from pathlib import Path

from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.target.user_code import did_you_mean, exists


class LossName(StrEnum):
    """The losses that `--loss` accepts by name."""

    CROSS_ENTROPY = "cross-entropy"
    MSE = "mse"
    MEAN = "mean"
    SUM_SQUARES = "sum-squares"


LOSS_NAMES = tuple(name.value for name in LossName)

FLOATING_TYPES = ("float16", "bfloat16", "float32", "float64", "half", "float", "double")
"""The dtypes of `--dtype`, each an attribute of torch."""

OPTIMIZERS = (
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam",
    "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam",
)  # fmt: skip
"""The classes of `torch.optim`; a newer torch may have more."""

_FLOATING_SIZES = {"16": "float16", "32": "float32", "64": "float64"}
_DEVICES = {"gpu": "cuda", "nvidia": "cuda", "metal": "mps", "apple": "mps", "intel": "xpu"}
_NUMBERED = re.compile(r"(?P<kind>cuda|gpu|xpu)[ _.-]?(?P<number>\d+)")

INPUT_TYPES = (
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
    "int8", "int16", "int32", "int64", "uint8", "bool", "float", "double", "half", "int",
    "long",
)  # fmt: skip
"""The dtypes of `--input`, each an attribute of torch."""


def meant_type(name: str) -> str | None:
    """Return the floating-point dtype for another common name, as `fp16`; None if there is none."""
    short = re.fullmatch(r"(?:fp|f)(\d+)", name.lower())
    if short is not None:
        return _FLOATING_SIZES.get(short[1])
    return "bfloat16" if name.lower() in ("bf16", "bfp16", "bfloat") else None


def meant_device(name: str) -> str | None:
    """Return the device that an invalid name likely means, as `gpu`; None if there is none."""
    plain = name.strip().lower()
    if (numbered := _NUMBERED.fullmatch(plain)) is not None:
        plain = f"{numbered['kind']}:{numbered['number']}"
    kind, colon, number = plain.partition(":")
    meant = f"{_DEVICES.get(kind, kind)}{colon}{number}"
    return meant if meant != name and re.fullmatch(r"(cuda|xpu|mps|cpu)(:\d+)?", meant) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The literal arguments of a call."""

    positional: tuple[object, ...]
    keywords: tuple[tuple[str, object], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A dotted name, or a call of one with literal arguments."""

    text: str
    names: tuple[str, ...]
    call: Arguments | None
    """None for a name without a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """The location of the target, and the object in it."""

    text: str
    location: str
    """A path or a dotted module name."""
    expression: Expression | None


def parse_target(text: str) -> TargetSpec:
    """Split `TARGET` into location and EXPR.

    The separator is the last colon with more than one character before it (a Windows drive has one)
    and an EXPR after it. A path that exists is never split.

    Raises:
        GradscopeError: The text after the separator is no EXPR.
    """
    # A file name may contain a colon.
    if exists(Path(text)):
        return TargetSpec(text=text, location=text, expression=None)
    separators = [
        position for position, letter in enumerate(text) if letter == ":" and position > 1
    ]
    for position in reversed(separators):
        expression = _parse_or_none(text[position + 1 :])
        if expression is not None:
            return TargetSpec(text=text, location=text[:position], expression=expression)
    for position in reversed(separators):
        # Raises with what is wrong; a name with a slash belongs to the path.
        if not set("/\\") & set(text[position + 1 :].partition("(")[0]):
            parse_expression(text[position + 1 :])
    return TargetSpec(text=text, location=text, expression=None)


def parse_expression(text: str) -> Expression:
    """Parse EXPR; only literals are evaluated.

    Raises:
        GradscopeError: It is neither a dotted name nor a call with literal arguments.
    """
    expression = _parse_or_none(text)
    if expression is None:
        raise GradscopeError(
            f"cannot read {text!r} as the name of a model, batch or loss",
            cause="expected a name, or a call whose arguments are Python literals",
            help="write it as  Net  or  build_model(hidden=64)",
        )
    return expression


def _parse_or_none(text: str) -> Expression | None:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        call = _arguments(tree) if isinstance(tree, ast.Call) else None
        names = _dotted(tree.func if isinstance(tree, ast.Call) else tree)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        # Exceptions that ast.parse and ast.literal_eval document for malformed text.
        return None
    return Expression(text=text.strip(), names=names, call=call)


def _arguments(call: ast.Call) -> Arguments:
    keywords = []
    for keyword in call.keywords:
        if keyword.arg is None:
            raise ValueError("** is not a literal argument")
        keywords.append((keyword.arg, ast.literal_eval(keyword.value)))
    positional = tuple(ast.literal_eval(argument) for argument in call.args)
    return Arguments(positional=positional, keywords=tuple(keywords))


def _dotted(tree: ast.expr) -> tuple[str, ...]:
    match tree:
        case ast.Name(id=name):
            return (name,)
        case ast.Attribute(value=value, attr=name):
            return (*_dotted(value), name)
        case _:
            raise ValueError("not a dotted name")


GRAMMAR = "[name=][dtype[low,high]:]size,size,..."

# Numbers of 18 digits fit into the 64 bits in which torch counts elements.
_SPEC = re.compile(
    r"""(?:(?P<name>[A-Za-z_]\w*)=)?
        (?:(?P<dtype>[A-Za-z]\w*)(?:\[(?P<low>[^,\[\]]+),(?P<high>[^,\[\]]+)\])?:)?
        (?P<dims>\d{1,18}(?:,\d{1,18})*)""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """A parsed `--input` option."""

    text: str
    name: str | None
    dtype: str
    """Name of a dtype in `INPUT_TYPES`."""
    low: float | None
    high: float | None
    """Exclusive upper bound, as in `torch.randint`; None without a range."""
    dims: tuple[int, ...]


def parse_input(text: str) -> InputSpec:
    """Parse one specification.

    Raises:
        GradscopeError: It does not follow the grammar.
    """
    match = _SPEC.fullmatch(text.replace(" ", ""))
    if match is None:
        raise GradscopeError(
            f"cannot read --input {text!r}",
            cause=f"expected {GRAMMAR}",
            help="for example: --input 1,3,224,224  or  --input input_ids=int64[0,50257]:2,128",
        )
    dtype = match["dtype"] or "float32"
    if dtype not in INPUT_TYPES:
        raise GradscopeError(
            f"--input {text!r}: unknown dtype {dtype!r}",
            help=did_you_mean(dtype, INPUT_TYPES) or f"one of {', '.join(INPUT_TYPES)}",
        )
    low, high = _range(text, match["low"], match["high"])
    return InputSpec(
        text=text,
        name=match["name"],
        dtype=dtype,
        low=low,
        high=high,
        dims=tuple(int(size) for size in match["dims"].split(",")),
    )


def _range(text: str, low: str | None, high: str | None) -> tuple[float | None, float | None]:
    if low is None or high is None:
        return None, None
    try:
        bounds = float(low), float(high)
    except ValueError:
        raise GradscopeError(
            f"cannot read the range of --input {text!r}",
            cause=f"{low!r} and {high!r} must be numbers",
        ) from None
    if not bounds[0] < bounds[1]:
        raise GradscopeError(
            f"the range of --input {text!r} is empty", cause="low must be below high"
        )
    return bounds
