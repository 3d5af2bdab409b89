"""Creates tensors from `--input` specifications such as `int64[0,50257]:2,128`."""

import torch

from gradscope.errors import GradscopeError
from gradscope.target.notation import InputSpec, parse_input


def make_inputs(texts: tuple[str, ...], *, seed: int | None, vocabulary: int | None) -> object:
    """Return the batch of `--input` options: a tensor, a tuple, or a dict of named tensors.

    Floats are normal (uniform with a range), integers uniform, bools all true.

    Args:
        texts: The specifications, either all named or all positional.
        seed: Seed of a separate generator; None draws from torch's global one.
        vocabulary: Range of integers without an explicit one; None makes that an error.

    Raises:
        GradscopeError: A specification is not valid.
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


def spec_like(tensor: torch.Tensor) -> str:
    """Return a specification for tensors of this shape, dtype and, for integers, range."""
    dims = ",".join(map(str, tensor.shape))
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.dtype is torch.float32:
        return dims
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool:
        return f"{dtype}:{dims}"
    high = int(tensor.max()) + 1 if tensor.numel() else 1
    return f"{dtype}[0,{high}]:{dims}"


def _make(
    spec: InputSpec, generator: torch.Generator | None, vocabulary: int | None
) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    if dtype is torch.bool:
        return torch.ones(spec.dims, dtype=torch.bool)
    if dtype.is_floating_point or dtype.is_complex:
        return _make_floating(spec, dtype, generator)
    low, high = spec.low, spec.high
    if low is None or high is None:
        if vocabulary is None:
            raise GradscopeError(
                f"--input {spec.text!r} needs a range, because its type is an integer",
                help=f"--input {spec.text.replace(':', '[0,10]:')}",
            )
        low, high = 0, vocabulary
    return torch.randint(int(low), int(high), spec.dims, dtype=dtype, generator=generator)


def _make_floating(
    spec: InputSpec, dtype: torch.dtype, generator: torch.Generator | None
) -> torch.Tensor:
    if spec.low is None or spec.high is None:
        return torch.randn(spec.dims, generator=generator).to(dtype)
    uniform = torch.rand(spec.dims, generator=generator)
    return (spec.low + (spec.high - spec.low) * uniform).to(dtype)
