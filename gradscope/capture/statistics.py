"""From gradients to numbers: exact norms and extremes, sampled distributions.

Small gradients are held until enough of them have come together and are then measured as the rows
of one matrix, which costs a fraction of measuring each by itself. Large ones are measured as they
arrive, and a strided sample of them joins the small ones. On an accelerator nothing is read back
before `results`, so that backward is never made to wait for the device.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gradscope.capture.elements import NotMeasurable, elements, in_memory_order
from gradscope.recording.records import GradientStat

Key = tuple[int, int]
"""What the caller tells gradients apart by."""

HELD_ELEMENTS = 4096
"""Gradients up to this size are held and measured whole; of larger ones a sample of this size gives
the zero share (standard error: at most 0.8 %)."""

MAGNITUDE_ELEMENTS = 256
"""At least this many elements of a gradient are sorted into octaves, and at least a quarter of
those held (standard error of a share: at most 3 %, of large gradients 1.6 %)."""

FLUSH_ELEMENTS = 1 << 18
"""Held gradients are measured once this many elements have come together (1 MiB of float32)."""

CHUNK = 1024
"""Elements summed in float32 before float64 takes over: keeps a norm within 1e-7 of the exact one,
for half-precision elements too (with chunks of 4,096 these are off by 5e-7)."""

_SAFE = {torch.float32: (1e-12, 1e15), torch.float64: (1e-140, 1e140)}
"""Norms between which sums of squares have neither overflowed nor lost what counts."""

_EXPONENT_BITS = {
    torch.float32: (torch.int32, 23, 255, 127),
    torch.float64: (torch.int64, 52, 2047, 1023),
}
"""By element type: an integer of its width, mantissa bits, exponent mask, exponent bias."""

_REAL = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})


@dataclass(slots=True)
class _Exact:
    """Numbers of all stored elements: plain, or 0-dim tensors on an accelerator."""

    norm: float | Tensor
    maximum: float | Tensor
    nonfinite: float | Tensor


@dataclass(slots=True)
class _Origin:
    """The gradient of which the held values are only a part."""

    stored: int
    """Elements that it stores."""
    repeats: int
    """How often each of them occurs."""
    numel: int
    exact: _Exact | None
    """None where the held values are all that is stored."""


@dataclass(slots=True)
class _Bucket:
    """Held values measured together, as rows of one matrix."""

    keys: list[Key]
    sizes: list[int]
    origins: list[_Origin | None]
    norms: list[float]
    maxima: list[float]
    nonzeros: list[float]
    nonfinite: dict[int, int]
    """By row, where there are any."""
    sample: Tensor | None
    """`[rows, elements]`, until they are sorted into octaves."""
    octaves: list[dict[int, int]] = field(default_factory=list)
    """By row: how many finite, normal elements of the sample have which binary exponent."""

    def sort_sample(self) -> None:
        """Sort the sample into octaves and drop it."""
        if self.sample is not None:
            self.octaves = _octaves(self.sample)
            self.sample = None


class Numbers(Mapping[Key, GradientStat]):
    """The numbers of many gradients, made into records as they are asked for."""

    def __init__(self, buckets: list[_Bucket]) -> None:
        self._places = {
            key: (bucket, row) for bucket in buckets for row, key in enumerate(bucket.keys)
        }

    def __getitem__(self, key: Key) -> GradientStat:
        """Return the numbers of one gradient."""
        bucket, row = self._places[key]
        bucket.sort_sample()
        return _stat(bucket, row)

    def __iter__(self) -> Iterator[Key]:
        """Iterate over the keys."""
        return iter(self._places)

    def __len__(self) -> int:
        """Return how many gradients were measured."""
        return len(self._places)


class Measurer:
    """Collects gradients under keys and gives their numbers in one go.

    A tensor given to it must not be written to before the next `flush` or `results`, and none
    outlives `results`. A key measured twice keeps its last numbers.
    """

    def __init__(self) -> None:
        self._held: list[tuple[Key, Tensor]] = []
        self._held_elements = 0
        self._origins: dict[Key, _Origin] = {}
        self._buckets: list[_Bucket] = []
        self.unmeasured: dict[Key, str] = {}
        """Why a key has no numbers."""

    def add(self, key: Key, tensor: Tensor) -> None:
        """Measure a tensor now if it is large, or hold it if it is small."""
        size = tensor.numel()
        if size > HELD_ELEMENTS or tensor.dtype not in _REAL or tensor.layout is not torch.strided:
            self._add_part(key, tensor)
            return
        self._held.append((key, tensor))
        self._held_elements += size
        if self._held_elements > FLUSH_ELEMENTS:
            self.flush()
            for bucket in self._buckets:
                bucket.sort_sample()

    def _add_part(self, key: Key, tensor: Tensor) -> None:
        try:
            values, repeats, numel = elements(tensor)
        except NotMeasurable as reason:
            self.unmeasured[key] = str(reason)
            return
        stored = values.numel()
        exact = None
        if stored > HELD_ELEMENTS:
            flat = in_memory_order(values)
            exact = _exact(flat) if flat.is_cpu else _exact_on_device(flat)
            values = flat[:: stored // HELD_ELEMENTS][:HELD_ELEMENTS].clone()
        self._origins[key] = _Origin(stored, repeats, numel, exact)
        self._held.append((key, values))
        self._held_elements += values.numel()

    def flush(self) -> None:
        """Turn the gradients held in main memory into numbers, so that they can be freed."""
        held, self._held, self._held_elements = self._held, [], 0
        self._held = [one for one in held if not one[1].is_cpu]
        self._measure([one for one in held if one[1].is_cpu])

    def results(self) -> Numbers:
        """Return the numbers of everything added since the last call.

        This is where results on an accelerator are read back: one transfer for each type.
        """
        self.flush()
        if self._held:
            values = _to_host([tensor for _, tensor in self._held])
            self._bring_scalars()
            self._measure(
                [(key, value) for (key, _), value in zip(self._held, values, strict=True)]
            )
        numbers = Numbers(self._buckets)
        self._held, self._buckets, self._origins = [], [], {}
        return numbers

    def _bring_scalars(self) -> None:
        waiting = [
            o.exact for o in self._origins.values() if o.exact and torch.is_tensor(o.exact.norm)
        ]
        scalars = [
            s for e in waiting for s in (e.norm, e.maximum, e.nonfinite) if torch.is_tensor(s)
        ]
        numbers = iter([float(scalar) for scalar in _to_host(scalars)])
        for exact in waiting:
            exact.norm, exact.maximum, exact.nonfinite = next(numbers), next(numbers), next(numbers)

    def _measure(self, held: list[tuple[Key, Tensor]]) -> None:
        groups: dict[tuple[torch.dtype, int], list[tuple[Key, Tensor]]] = {}
        for one in held:
            tensor = one[1]
            groups.setdefault((tensor.dtype, tensor.numel().bit_length()), []).append(one)
        with torch.no_grad():
            for (_, bits), group in groups.items():
                keys = [key for key, _ in group]
                if bits:
                    origins = [self._origins.get(key) for key in keys]
                    self._buckets.append(_measure_bucket(keys, [t for _, t in group], origins))
                else:
                    self.unmeasured.update(dict.fromkeys(keys, "it has no elements"))


def norms(tensors: list[Tensor]) -> list[float]:
    """Return the Euclidean norm of each tensor, NaN where its elements cannot be reached."""
    result = [math.nan] * len(tensors)
    alike: dict[tuple[torch.dtype, torch.Size], list[int]] = {}
    measurer = Measurer()
    for place, tensor in enumerate(tensors):
        if tensor.numel() <= HELD_ELEMENTS and tensor.dtype in _SAFE and tensor.is_cpu:
            alike.setdefault((tensor.dtype, tensor.shape), []).append(place)
        else:
            measurer.add((place, 0), tensor.detach())
    with torch.no_grad():
        for places in alike.values():
            matrix = _as_matrix([tensors[place] for place in places])
            for place, norm in zip(places, _norms(matrix), strict=True):
                result[place] = norm
    for (place, _), stat in measurer.results().items():
        result[place] = stat.norm
    return result


def _exact(flat: Tensor) -> _Exact:
    """Measure elements on the CPU."""
    least, greatest = (float(extreme) for extreme in torch.aminmax(flat))
    maximum = max(abs(least), abs(greatest))
    if not math.isfinite(maximum):
        return _Exact(maximum, maximum, _nonfinite(flat))
    low, high = _SAFE.get(flat.dtype, _SAFE[torch.float32])
    if flat.dtype is torch.float64 or not low < maximum < high:
        return _Exact(_norm_in_double(flat), maximum, 0)
    rows = flat.numel() // CHUNK
    chunks = flat[: rows * CHUNK].view(rows, CHUNK)
    by_chunk = torch.linalg.vector_norm(chunks, dim=1, dtype=torch.float32)
    total = float(torch.linalg.vector_norm(by_chunk, dtype=torch.float64))
    if rows * CHUNK < flat.numel():
        rest = torch.linalg.vector_norm(flat[rows * CHUNK :], dtype=torch.float64)
        total = math.hypot(total, float(rest))
    return _Exact(total, maximum, 0)


def _norm_in_double(flat: Tensor) -> float:
    """Euclidean norm by float64 sums of blocks scaled to a largest magnitude of 1."""
    least, greatest = torch.aminmax(flat)
    maximum = max(abs(float(least)), abs(float(greatest)))
    if maximum == 0 or not math.isfinite(maximum):
        return maximum
    squares = (
        float(torch.linalg.vector_norm(block.double() / maximum)) ** 2
        for block in flat.split(FLUSH_ELEMENTS)
    )
    return math.sqrt(math.fsum(squares)) * maximum


def _exact_on_device(flat: Tensor) -> _Exact:
    """Measure elements on an accelerator, as tensors there, so that nothing waits for it."""
    wide = torch.float32 if flat.device.type == "mps" else torch.float64
    low, high = torch.aminmax(flat)
    return _Exact(
        torch.linalg.vector_norm(flat, dtype=wide),
        torch.maximum(low.abs(), high.abs()).to(wide),
        (flat.numel() - torch.isfinite(flat).sum()).to(wide),
    )


def _to_host(tensors: list[Tensor]) -> list[Tensor]:
    """Bring tensors into main memory, together by type and device, flattened."""
    groups: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for index, tensor in enumerate(tensors):
        groups.setdefault((tensor.dtype, tensor.device), []).append(index)
    result = list(tensors)
    for indices in groups.values():
        flat = torch.cat([tensors[i].detach().reshape(-1) for i in indices]).cpu()
        pieces = flat.split([tensors[i].numel() for i in indices])
        for i, piece in zip(indices, pieces, strict=True):
            result[i] = piece
    return result


def _as_matrix(tensors: list[Tensor]) -> Tensor:
    """Lay tensors out as the rows of one matrix, padded with zeros to the longest."""
    shape = tensors[0].shape
    if all(tensor.shape == shape for tensor in tensors):
        matrix = torch.stack(tensors).view(len(tensors), -1)
    else:
        flat = [tensor.reshape(-1) for tensor in tensors]
        matrix = torch.nn.utils.rnn.pad_sequence(flat, batch_first=True)
    return matrix if matrix.dtype in _EXPONENT_BITS else matrix.float()


def _measure_bucket(
    keys: list[Key], values: list[Tensor], origins: list[_Origin | None]
) -> _Bucket:
    matrix = _as_matrix(values)
    maxima: list[float] = torch.maximum(matrix.amin(dim=1).abs_(), matrix.amax(dim=1)).tolist()
    broken = [row for row, maximum in enumerate(maxima) if not math.isfinite(maximum)]
    return _Bucket(
        keys=keys,
        sizes=[value.numel() for value in values],
        origins=origins,
        norms=_norms(matrix),
        maxima=maxima,
        nonzeros=_nonzeros(matrix, has_nan=bool(broken)),
        nonfinite={row: _nonfinite(values[row]) for row in broken},
        sample=matrix[:, :: min(4, -(-matrix.shape[1] // MAGNITUDE_ELEMENTS))].contiguous(),
    )


def _nonfinite(values: Tensor) -> int:
    return int(values.numel() - torch.isfinite(values).sum())


def _norms(matrix: Tensor) -> list[float]:
    """Euclidean norm of each row."""
    if matrix.shape[1] <= CHUNK:
        by_row = torch.linalg.vector_norm(matrix, dim=1)
    else:
        chunks = [torch.linalg.vector_norm(c, dim=1) for c in matrix.split(CHUNK, dim=1)]
        by_row = torch.linalg.vector_norm(torch.stack(chunks), dim=0, dtype=torch.float64)
    found: list[float] = by_row.tolist()
    low, high = _SAFE[matrix.dtype]
    if not all(low < norm < high for norm in found):
        found = torch.linalg.vector_norm(matrix, dim=1, dtype=torch.float64).tolist()
        low, high = _SAFE[torch.float64]
    return [
        norm if low < norm < high or not norm else _norm_in_double(matrix[row])
        for row, norm in enumerate(found)
    ]


def _nonzeros(matrix: Tensor, *, has_nan: bool) -> list[float]:
    """How many elements of each row are not zero (NaN is not)."""
    if has_nan:  # whose sign is 0
        matrix = matrix.nan_to_num(nan=1.0)
    counts: list[float] = matrix.sign().abs_().sum(dim=1).tolist()
    return counts


def _octaves(sample: Tensor) -> list[dict[int, int]]:
    """Count the binary exponents of each row's finite, normal elements."""
    integer, mantissa, mask, bias = _EXPONENT_BITS[sample.dtype]
    exponents = sample.view(integer).bitwise_right_shift(mantissa).bitwise_and_(mask)
    rows = len(sample)
    exponents += torch.arange(0, rows * (mask + 1), mask + 1, dtype=integer, device="cpu")[:, None]
    counts = torch.bincount(exponents.view(-1), minlength=rows * (mask + 1)).view(rows, mask + 1)
    places = counts.nonzero()
    amounts = counts[places[:, 0], places[:, 1]].tolist()
    octaves: list[dict[int, int]] = [{} for _ in range(rows)]
    for (row, exponent), amount in zip(places.tolist(), amounts, strict=True):
        if 0 < exponent < mask:  # 0: zeros and subnormals; all ones: infinities and NaN
            octaves[row][exponent - bias] = amount
    return octaves


def _stat(bucket: _Bucket, row: int) -> GradientStat:
    size = bucket.sizes[row]
    origin = bucket.origins[row] or _Origin(size, 1, size, None)
    exact = origin.exact or _Exact(
        bucket.norms[row], bucket.maxima[row], bucket.nonfinite.get(row, 0)
    )
    norm = float(exact.norm) * math.sqrt(origin.repeats)
    present = origin.stored * origin.repeats / origin.numel
    zero_share = (size - bucket.nonzeros[row]) / size * present + (1 - present)
    if origin.exact and zero_share == 1 and norm != 0:
        zero_share = 1 - 1 / origin.numel  # the sample met only zeros, and yet there is something
    octaves = bucket.octaves[row]
    lowest, highest = min(octaves, default=0), max(octaves, default=-1)
    return GradientStat(
        numel=origin.numel,
        norm=norm,
        absolute_maximum=float(exact.maximum),
        zero_share=zero_share,
        nonfinite=int(exact.nonfinite) * origin.repeats,
        sampled=origin.exact is not None,
        lowest_exponent=lowest,
        magnitudes=tuple(octaves.get(exponent, 0) for exponent in range(lowest, highest + 1)),
    )
