"""Parses `--input` specifications such as `int64[0,50257]:2,128`, without creating tensors."""

import re
from dataclasses import dataclass

from gradscope.errors import GradscopeError
from gradscope.target.choices import INPUT_TYPES
from gradscope.target.user_code import did_you_mean

GRAMMAR = "[name=][dtype[low,high]:]size,size,..."

_SPEC = re.compile(
    r"""(?:(?P<name>[A-Za-z_]\w*)=)?
        (?:(?P<dtype>[A-Za-z]\w*)(?:\[(?P<low>[^,\[\]]+),(?P<high>[^,\[\]]+)\])?:)?
        (?P<dims>\d{1,18}(?:,\d{1,18})*)""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One `--input` option."""

    text: str
    name: str | None
    dtype: str
    """One of `INPUT_TYPES`."""
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
