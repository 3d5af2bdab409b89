"""Arithmetic of gradients: exact norms and extremes, magnitudes by octave."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

CHUNK = 1024
"""Elements summed in float32 before float64 takes over. It keeps a norm within 1e-7 of the exact
one, also for half-precision elements (5e-7 with chunks of 4,096)."""

SAFE_NORMS = {torch.float32: (1e-12, 1e15), torch.float64: (1e-140, 1e140)}
"""Range of norms in which sums of squares neither overflow nor lose significant parts."""

_EXPONENT_BITS = {
    torch.float32: (torch.int32, 23, 255, 127),
    torch.float64: (torch.int64, 52, 2047, 1023),
}
"""By element type: integer type of equal width, mantissa bits, exponent mask, exponent bias."""


BLOCK = 1 << 18
"""Number of elements widened to float64 at a time."""

_DEVICE_BLOCK = 1 << 24
"""Number of elements that an accelerator copies at a time."""


@dataclass(slots=True)
class Exact:
    """Statistics of all stored elements: plain numbers, or 0-dim tensors on an accelerator."""

    norm: float | Tensor
    maximum: float | Tensor
    nonfinite: float | Tensor


def in_memory_order(tensor: Tensor) -> Tensor:
    """Flatten without a copy if the elements are dense, in any order of dimensions."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    strides = tensor.stride()
    # `channels_last` tensors are dense but not contiguous: `reshape(-1)` would copy them.
    order = sorted(range(tensor.dim()), key=strides.__getitem__, reverse=True)
    permuted = tensor.permute(order)
    return permuted.view(-1) if permuted.is_contiguous() else tensor.reshape(-1)


def exact(flat: Tensor) -> Exact:
    """Measure elements on the CPU."""
    # `aminmax` propagates NaN, so one pass tells about NaN, infinity and the scale.
    least, greatest = (float(extreme) for extreme in torch.aminmax(flat))
    maximum = max(abs(least), abs(greatest))
    if not math.isfinite(maximum):
        return Exact(maximum, maximum, count_nonfinite(flat))
    low, high = SAFE_NORMS.get(flat.dtype, SAFE_NORMS[torch.float32])
    # The chunks below are summed in float32, which float64 elements and extreme squares do not
    # survive.
    if flat.dtype is torch.float64 or not low < maximum < high:
        return Exact(norm_in_double(flat), maximum, 0)
    rows = flat.numel() // CHUNK
    chunks = flat[: rows * CHUNK].view(rows, CHUNK)
    by_chunk = torch.linalg.vector_norm(chunks, dim=1, dtype=torch.float32)
    total = float(torch.linalg.vector_norm(by_chunk, dtype=torch.float64))
    if rows * CHUNK < flat.numel():
        rest = torch.linalg.vector_norm(flat[rows * CHUNK :], dtype=torch.float64)
        total = math.hypot(total, float(rest))
    return Exact(total, maximum, 0)


def short_norms(tensors: list[Tensor]) -> list[float]:
    """Return the norms of tensors of a few thousand elements, all of one type in `SAFE_NORMS`."""
    # One foreach kernel for all: with a call per tensor, the calls cost more than the sums.
    found: list[float] = torch.stack(torch._foreach_norm(tensors)).tolist()
    low, high = SAFE_NORMS[tensors[0].dtype]
    return [
        norm if low < norm < high else norm_in_double(tensor.reshape(-1))
        for norm, tensor in zip(found, tensors, strict=True)
    ]


def long_norm(flat: Tensor) -> float:
    """Return the Euclidean norm of many elements, of a type in `SAFE_NORMS`."""
    rows = flat.numel() // CHUNK
    chunks = flat[: rows * CHUNK].view(rows, CHUNK)
    by_chunk = torch.linalg.vector_norm(chunks, dim=1)
    rest = torch.linalg.vector_norm(flat[rows * CHUNK :])
    total = math.hypot(float(torch.linalg.vector_norm(by_chunk, dtype=torch.float64)), float(rest))
    low, high = SAFE_NORMS[flat.dtype]
    return total if low < total < high else norm_in_double(flat)


def norm_in_double(flat: Tensor) -> float:
    """Return the Euclidean norm by float64 sums of blocks scaled to a maximum of 1."""
    if not flat.numel():
        return 0.0
    least, greatest = torch.aminmax(flat)
    maximum = max(abs(float(least)), abs(float(greatest)))
    if maximum == 0 or not math.isfinite(maximum):
        return maximum
    # By blocks: a copy of all elements in float64 could exhaust the memory.
    squares = (
        float(torch.linalg.vector_norm(block.double() / maximum)) ** 2
        for block in flat.split(BLOCK)
    )
    return math.sqrt(math.fsum(squares)) * maximum


def widest(device: torch.device) -> torch.dtype:
    """Return the widest floating-point type that a device supports."""
    # On MPS, any use of float64 raises.
    return torch.float32 if device.type == "mps" else torch.float64


def exact_on_device(flat: Tensor) -> Exact:
    """Measure elements on an accelerator, as tensors there, without synchronization."""
    wide = widest(flat.device)
    low, high = torch.aminmax(flat)
    # By blocks, because `isfinite` copies its input.
    finite = [torch.isfinite(block).sum() for block in flat.split(_DEVICE_BLOCK)]
    return Exact(
        norms_on_device([flat])[0],
        # All of one type, because `to_host` makes a transfer per type.
        torch.maximum(low.abs(), high.abs()).to(wide),
        (flat.numel() - torch.stack(finite).sum()).to(wide),
    )


def norms_on_device(tensors: list[Tensor]) -> Sequence[Tensor]:
    """Return the Euclidean norms of tensors of one device and type, as tensors on that device.

    Sums are computed in the widest type. `vector_norm` would first copy the elements to that type;
    the `_foreach` kernel does not.
    """
    return torch._foreach_norm(tensors, 2, widest(tensors[0].device))


def zeros_on_device(flat: Tensor) -> Tensor:
    """Count the zero elements on an accelerator, as a tensor there."""
    return torch.stack([(block == 0).sum() for block in flat.split(_DEVICE_BLOCK)]).sum()


def to_host(tensors: list[Tensor]) -> list[Tensor]:
    """Copy tensors to main memory, flattened, in one transfer per type and device."""
    groups: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for index, tensor in enumerate(tensors):
        groups.setdefault((tensor.dtype, tensor.device), []).append(index)
    result = list(tensors)
    for indices in groups.values():
        # One transfer per group: every read from an accelerator waits for all work before it.
        flat = torch.cat([tensors[i].detach().reshape(-1) for i in indices]).cpu()
        pieces = flat.split([tensors[i].numel() for i in indices])
        for i, piece in zip(indices, pieces, strict=True):
            result[i] = piece
    return result


def as_matrix(tensors: list[Tensor]) -> Tensor:
    """Stack tensors as the rows of a matrix, padded with zeros to the longest."""
    shape = tensors[0].shape
    if all(tensor.shape == shape for tensor in tensors):
        matrix = torch.stack(tensors).reshape(
            len(tensors), -1
        )  # in memory, channels may be the last dimension
    else:
        flat = [tensor.reshape(-1) for tensor in tensors]
        # Zeros change neither norms nor maxima, and they are not counted as non-zero.
        matrix = torch.nn.utils.rnn.pad_sequence(flat, batch_first=True)
    # Norms of half types would be rounded to their few bits, and their subnormals have no octave.
    return matrix if matrix.dtype in _EXPONENT_BITS else matrix.float()


def count_nonfinite(values: Tensor) -> int:
    """Return how many elements are NaN or infinite."""
    return int(values.numel() - torch.isfinite(values).sum())


def row_norms(matrix: Tensor) -> list[float]:
    """Return the Euclidean norm of each row."""
    if matrix.shape[1] <= CHUNK:
        by_row = torch.linalg.vector_norm(matrix, dim=1)
    elif matrix.shape[1] % CHUNK == 0:
        # Two calls for any length, where `split` below needs one per chunk.
        chunks = torch.linalg.vector_norm(matrix.view(len(matrix), -1, CHUNK), dim=2)
        by_row = torch.linalg.vector_norm(chunks, dim=1, dtype=torch.float64)
    else:
        parts = [torch.linalg.vector_norm(c, dim=1) for c in matrix.split(CHUNK, dim=1)]
        by_row = torch.linalg.vector_norm(torch.stack(parts), dim=0, dtype=torch.float64)
    found: list[float] = by_row.tolist()
    low, high = SAFE_NORMS[matrix.dtype]
    if not all(low < norm < high for norm in found):
        found = torch.linalg.vector_norm(matrix, dim=1, dtype=torch.float64).tolist()
        low, high = SAFE_NORMS[torch.float64]
    # float32 squares never underflow in float64, so a zero is a true zero; float64 squares may.
    trusts_zero = matrix.dtype is not torch.float64
    return [
        norm if low < norm < high or (trusts_zero and not norm) else norm_in_double(matrix[row])
        for row, norm in enumerate(found)
    ]


def nonzeros_of_moduli(moduli: Tensor, *, has_nan: bool) -> list[float]:
    """Count the non-zero elements of each row (NaN is not zero), overwriting them."""
    if has_nan:  # the sign of NaN is 0
        moduli.nan_to_num_(nan=1.0)
    counts: list[float] = moduli.sign_().sum(dim=1).tolist()
    return counts


def row_octaves(sample: Tensor) -> list[dict[int, int]]:
    """Count the binary exponents of each row's finite, normal elements."""
    integer, mantissa, mask, bias = _EXPONENT_BITS[sample.dtype]
    # The shift extends the sign bit of negative numbers; the mask removes it.
    exponents = sample.view(integer).bitwise_right_shift(mantissa).bitwise_and_(mask)
    rows = len(sample)
    # Each row has its own range of bins, so one `bincount` serves all. The device is named because
    # a script may have set another default.
    exponents += torch.arange(0, rows * (mask + 1), mask + 1, dtype=integer, device="cpu")[:, None]
    counts = torch.bincount(exponents.view(-1), minlength=rows * (mask + 1)).view(rows, mask + 1)
    positions = counts.nonzero()
    amounts = counts[positions[:, 0], positions[:, 1]].tolist()
    octaves: list[dict[int, int]] = [{} for _ in range(rows)]
    for (row, exponent), amount in zip(positions.tolist(), amounts, strict=True):
        if 0 < exponent < mask:  # 0: zeros and subnormals; all ones: infinities and NaN
            octaves[row][exponent - bias] = amount
    return octaves
