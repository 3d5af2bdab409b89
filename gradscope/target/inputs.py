"""Makes tensors from `--input` specifications such as `int64[0,50257]:2,128`."""

import re
from dataclasses import dataclass

import torch

from gradscope.errors import GradscopeError
from gradscope.target.user_code import did_you_mean

GRAMMAR = "[name=][dtype[low,high]:]size,size,..."

_SPEC = re.compile(
    r"""(?:(?P<name>[A-Za-z_]\w*)=)?
        (?:(?P<dtype>[A-Za-z]\w*)(?:\[(?P<low>[^,\[\]]+),(?P<high>[^,\[\]]+)\])?:)?
        (?P<dims>\d+(?:,\d+)*)""",
    re.VERBOSE,
)

_DTYPES = {
    name: getattr(torch, name)
    for name in (
        "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
        "int8", "int16", "int32", "int64", "uint8", "bool", "float", "double", "half", "int",
        "long",
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One `--input`."""

    text: str
    name: str | None
    dtype: torch.dtype
    low: float | None
    high: float | None
    """Not reached, as in `torch.randint`; None without a range."""
    dims: tuple[int, ...]


def make_inputs(texts: tuple[str, ...], *, seed: int | None, vocabulary: int | None) -> object:
    """The batch that `--input` describes: a tensor, a tuple of several, or a dict of named ones.

    Floats are normal (uniform where a range is given), integers uniform, bools all true.

    Args:
        texts: The specifications; named and positional ones do not mix.
        seed: Of a generator of its own; None draws from torch's global one.
        vocabulary: The range of integers given without one; None makes that an error.

    Raises:
        GradscopeError: A specification cannot be read.
    """
    specs = [parse_input(text) for text in texts]
    named = [spec for spec in specs if spec.name is not None]
    if named and len(named) < len(specs):
        raise GradscopeError(
            "named and positional --input do not mix",
            help="give every input a name: --input x=" + next(t for t in texts if "=" not in t),
        )
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    tensors = [_make(spec, generator, vocabulary) for spec in specs]
    if named:
        return {spec.name: tensor for spec, tensor in zip(specs, tensors, strict=True)}
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


def parse_input(text: str) -> InputSpec:
    """Parse one specification.

    Raises:
        GradscopeError: It does not follow the grammar.
    """
    match = _SPEC.fullmatch(text.replace(" ", ""))
    if match is None:
        raise GradscopeError(
            f"cannot read --input {text!r}",
            cause=f"it has to be {GRAMMAR}",
            help="for example: --input 1,3,224,224  or  --input input_ids=int64[0,50257]:2,128",
        )
    dtype = match["dtype"] or "float32"
    if dtype not in _DTYPES:
        raise GradscopeError(
            f"--input {text!r}: unknown dtype {dtype!r}",
            help=did_you_mean(dtype, _DTYPES) or f"one of {', '.join(_DTYPES)}",
        )
    low, high = _range(text, match["low"], match["high"])
    return InputSpec(
        text=text,
        name=match["name"],
        dtype=_DTYPES[dtype],
        low=low,
        high=high,
        dims=tuple(int(size) for size in match["dims"].split(",")),
    )


def spec_like(tensor: torch.Tensor) -> str:
    """A specification that makes a tensor of this shape, type and, for integers, range."""
    dims = ",".join(map(str, tensor.shape))
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.dtype is torch.float32:
        return dims
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool:
        return f"{dtype}:{dims}"
    high = int(tensor.max()) + 1 if tensor.numel() else 1
    return f"{dtype}[0,{high}]:{dims}"


def _range(text: str, low: str | None, high: str | None) -> tuple[float | None, float | None]:
    if low is None or high is None:
        return None, None
    try:
        bounds = float(low), float(high)
    except ValueError:
        raise GradscopeError(
            f"cannot read the range of --input {text!r}",
            cause=f"{low!r} and {high!r} have to be numbers",
        ) from None
    if not bounds[0] < bounds[1]:
        raise GradscopeError(
            f"the range of --input {text!r} is empty", cause="low has to be below high"
        )
    return bounds


def _make(
    spec: InputSpec, generator: torch.Generator | None, vocabulary: int | None
) -> torch.Tensor:
    if spec.dtype is torch.bool:
        return torch.ones(spec.dims, dtype=torch.bool)
    if spec.dtype.is_floating_point or spec.dtype.is_complex:
        return _make_floating(spec, generator)
    low, high = spec.low, spec.high
    if low is None or high is None:
        if vocabulary is None:
            raise GradscopeError(
                f"--input {spec.text!r} needs a range, as its type is an integer",
                help=f"--input {spec.text.replace(':', '[0,10]:')}",
            )
        low, high = 0, vocabulary
    return torch.randint(int(low), int(high), spec.dims, dtype=spec.dtype, generator=generator)


def _make_floating(spec: InputSpec, generator: torch.Generator | None) -> torch.Tensor:
    if spec.low is None or spec.high is None:
        return torch.randn(spec.dims, generator=generator).to(spec.dtype)
    uniform = torch.rand(spec.dims, generator=generator)
    return (spec.low + (spec.high - spec.low) * uniform).to(spec.dtype)
