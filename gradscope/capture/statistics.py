"""Measures gradients: exact norms and extremes, sampled distributions.

Small gradients are held until there are enough of them, and are then measured as the rows of one
matrix. This costs a fraction of measuring each by itself. Large ones are measured as they arrive,
and a strided sample of each joins the small ones. On an accelerator nothing is read back before
`results`: backward never waits for the device.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.arithmetic import (
    SAFE_NORMS,
    Exact,
    as_matrix,
    count_nonfinite,
    exact,
    exact_on_device,
    in_memory_order,
    long_norm,
    nonzeros_of_moduli,
    norms_on_device,
    row_norms,
    row_octaves,
    short_norms,
    to_host,
)
from gradscope.capture.reading import (
    CALCULABLE,
    NotReadable,
    elements,
    is_in_memory,
    is_in_place,
    is_plain,
)
from gradscope.capture.training.guard import without_dispatch_modes
from gradscope.recording.records import GradientStat

Key = tuple[int, int]
"""The caller's key of a gradient."""

HELD_ELEMENTS = 4096
"""Gradients up to this size are held and measured whole. For larger ones, a sample of this size
gives the share of zeros (standard error: at most 0.8 %)."""

MAGNITUDE_ELEMENTS = 256
"""At least this many elements of a gradient are sorted into octaves, and at least a quarter of
those held (standard error of a share: at most 3 %, for large gradients 1.6 %)."""

FLUSH_ELEMENTS = 1 << 18
"""Held gradients are measured once they have this many elements (1 MiB of float32)."""

_UNSORTED_BUCKETS = 16
"""Number of buckets whose samples may wait to be sorted into octaves."""

_OVERWRITTEN = "it was overwritten in place while backward ran"

_FREED = "its memory was freed while backward ran"


@dataclass(slots=True)
class _Origin:
    """The gradient that held values are a part of."""

    stored: int
    """Number of elements stored."""
    repeats: int
    """How often each stored element occurs."""
    numel: int
    exact: Exact | None
    """None if the held values are everything stored."""


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
    """Number of non-finite elements by row, if there are any."""
    sample: Tensor | None
    """`[rows, elements]`, until they are sorted into octaves."""
    octaves: list[dict[int, int]] = field(default_factory=list)
    """By row: number of finite, normal elements of the sample with each binary exponent."""

    def sort_sample(self) -> None:
        """Sort the sample into octaves and drop it."""
        if self.sample is not None:
            self.octaves = row_octaves(self.sample)
            self.sample = None


class Numbers(Mapping[Key, GradientStat]):
    """Statistics of many gradients, converted to records on request."""

    def __init__(self, buckets: list[_Bucket]) -> None:
        self._buckets = buckets
        self._positions = {
            key: (bucket, row) for bucket in buckets for row, key in enumerate(bucket.keys)
        }

    def __getitem__(self, key: Key) -> GradientStat:
        """Return the statistics of one gradient."""
        bucket, row = self._positions[key]
        bucket.sort_sample()
        return _stat(bucket, row, bucket.octaves[row])

    def without_histogram(self, key: Key) -> GradientStat | None:
        """Return the statistics of one gradient without the costly histogram of its sample."""
        position = self._positions.get(key)
        return None if position is None else _stat(*position, {})

    @property
    def is_finite(self) -> bool:
        """Whether every element of every gradient is finite."""
        return not any(
            bucket.nonfinite or any(one and one.exact and one.exact.nonfinite for one in origins)
            for bucket, origins in ((one, one.origins) for one in self._buckets)
        )

    def __iter__(self) -> Iterator[Key]:
        """Iterate over the keys."""
        return iter(self._positions)

    def __contains__(self, key: object) -> bool:
        """Return whether a gradient was measured."""
        return key in self._positions

    def __len__(self) -> int:
        """Return how many gradients were measured."""
        return len(self._positions)


class Measurer:
    """Collects gradients by key and computes their statistics together.

    A tensor that is written to before the next `flush` or `results` stays unmeasured. No tensor
    outlives `results`. A key measured twice keeps its last statistics.

    Args:
        magnitudes: Also sort samples of the elements into octaves.
    """

    def __init__(self, *, magnitudes: bool = True) -> None:
        self._with_magnitudes = magnitudes
        self._held: list[tuple[Key, Tensor, int]] = []
        self._held_elements = 0
        self._on_devices: list[tuple[Key, Tensor, int]] = []
        """Separate: autograd has a thread per device, which may add while others `flush`."""
        self._origins: dict[Key, _Origin] = {}
        self._buckets: list[_Bucket] = []
        self.unmeasured: dict[Key, str] = {}
        """Why a key has no statistics."""

    def add(self, key: Key, tensor: Tensor) -> None:
        """Measure a large tensor now, or hold a small one."""
        size = tensor.numel()
        if size > HELD_ELEMENTS or tensor.dtype not in CALCULABLE or not is_in_place(tensor):
            self._add_part(key, tensor)
            return
        try:
            version = tensor._version
        except RuntimeError:  # inference tensors do not count versions
            self._add_part(key, tensor)
            return
        self._hold(key, tensor, version, size)

    def _hold(self, key: Key, tensor: Tensor, version: int, size: int) -> None:
        if not tensor.is_cpu:
            self._on_devices.append((key, tensor, version))
            return
        self._held.append((key, tensor, version))
        self._held_elements += size
        # Only the thread of the CPU flushes: autograd runs another thread per device.
        if self._held_elements > FLUSH_ELEMENTS:
            self.flush()

    def _add_part(self, key: Key, tensor: Tensor) -> None:
        # Hooks of a backward run under the script's modes.
        with DisableTorchFunction(), without_dispatch_modes():
            try:
                values, repeats, numel = elements(tensor)
            except NotReadable as reason:
                self.unmeasured[key] = str(reason)
                return
            stored = values.numel()
            if numel and not stored:  # a sparse tensor of zeros only
                values = values.new_zeros(1)
            numbers = None
            if stored > HELD_ELEMENTS:
                flat = in_memory_order(values)
                numbers = exact(flat) if flat.is_cpu else exact_on_device(flat)
                # A copy, because a view would keep the whole gradient alive.
                values = flat[:: stored // HELD_ELEMENTS][:HELD_ELEMENTS].clone()
            # Inference tensors count no versions: a later write would go unnoticed.
            elif values.is_inference():
                values = values.clone()
        self._origins[key] = _Origin(stored, repeats, numel, numbers)
        self._hold(key, values, values._version, values.numel())

    def flush(self) -> None:
        """Measure the gradients held in main memory, and release them."""
        held, self._held, self._held_elements = self._held, [], 0
        with DisableTorchFunction(), without_dispatch_modes():
            self._measure(self._untouched(held))
            for bucket in self._buckets[:-_UNSORTED_BUCKETS]:
                bucket.sort_sample()

    def results(self) -> Numbers:
        """Return the statistics of everything added since the last call.

        It reads accelerator results back, in one transfer per type.
        """
        self.flush()
        if self._on_devices:
            held = self._untouched(self._on_devices)
            values = to_host([tensor for _, tensor in held])
            self._bring_scalars()
            self._measure([(key, value) for (key, _), value in zip(held, values, strict=True)])
        numbers = Numbers(self._buckets)
        self._on_devices, self._buckets, self._origins = [], [], {}
        return numbers

    def _untouched(self, held: list[tuple[Key, Tensor, int]]) -> list[tuple[Key, Tensor]]:
        """Drop held tensors that were written to or freed since they were added."""
        left: list[tuple[Key, Tensor]] = []
        for key, tensor, version in held:
            if tensor._version != version:
                self.unmeasured[key] = _OVERWRITTEN
            # FSDP frees the storage of tensors that stay alive.
            elif not is_in_memory(tensor):
                self.unmeasured[key] = _FREED
            else:
                left.append((key, tensor))
        return left

    def _bring_scalars(self) -> None:
        waiting = [
            o.exact for o in self._origins.values() if o.exact and torch.is_tensor(o.exact.norm)
        ]
        scalars = [
            s for e in waiting for s in (e.norm, e.maximum, e.nonfinite) if torch.is_tensor(s)
        ]
        numbers = iter([float(scalar) for scalar in to_host(scalars)])
        for one in waiting:
            one.norm, one.maximum, one.nonfinite = next(numbers), next(numbers), next(numbers)

    def _measure(self, held: list[tuple[Key, Tensor]]) -> None:
        groups: dict[tuple[torch.dtype, int], list[tuple[Key, Tensor]]] = {}
        for one in held:
            tensor = one[1]
            # Rows are padded to the longest: within a factor of two, at most half of a matrix is
            # padding.
            groups.setdefault((tensor.dtype, tensor.numel().bit_length()), []).append(one)
        with torch.no_grad():
            for (_, bits), group in groups.items():
                keys = [key for key, _ in group]
                if bits:
                    origins = [self._origins.get(key) for key in keys]
                    values = [tensor for _, tensor in group]
                    bucket = _measure_bucket(
                        keys, values, origins, magnitudes=self._with_magnitudes
                    )
                    self._buckets.append(bucket)
                else:
                    self.unmeasured.update(dict.fromkeys(keys, "it has no elements"))


def norms(tensors: Sequence[Tensor | None]) -> list[float | None]:
    """Return the Euclidean norm of each tensor, None if its elements cannot be read."""
    result: list[float | None] = [None] * len(tensors)
    short: dict[torch.dtype, list[_Placed]] = {}
    on_devices: dict[tuple[torch.device, torch.dtype], list[_Placed]] = {}
    measurer = Measurer(magnitudes=False)
    with torch.no_grad():
        for position, tensor in enumerate(tensors):
            if tensor is None:
                continue
            dtype, is_readable = tensor.dtype, is_plain(tensor)
            if not tensor.is_cpu and dtype in CALCULABLE and is_readable and tensor.numel():
                on_devices.setdefault((tensor.device, dtype), []).append((position, tensor))
            elif dtype not in SAFE_NORMS or not (tensor.is_cpu and is_readable):
                measurer.add((position, 0), tensor.detach() if is_readable else tensor)
            # All short tensors cost one foreach call. Long ones are measured one by one.
            elif tensor.numel() <= HELD_ELEMENTS:
                dense = tensor if tensor.is_contiguous() else in_memory_order(tensor)
                short.setdefault(dtype, []).append((position, dense))
            else:
                result[position] = long_norm(in_memory_order(tensor))
        for position, norm in (*_short_norms(short.values()), *_device_norms(on_devices.values())):
            result[position] = norm
    for (position, _), stat in measurer.results().items():
        result[position] = stat.norm
    return result


_Placed = tuple[int, Tensor]
"""A tensor and its index."""


def _short_norms(groups: Iterable[list[_Placed]]) -> Iterator[tuple[int, float]]:
    for group in groups:
        found = short_norms([tensor for _, tensor in group])
        yield from zip((position for position, _ in group), found, strict=True)


def _device_norms(groups: Iterable[list[_Placed]]) -> Iterator[tuple[int, float]]:
    """Yield the norms of tensors on accelerators, all read back at once."""
    positions, found = list[int](), list[Tensor]()
    for group in groups:
        positions += [position for position, _ in group]
        found += norms_on_device([tensor for _, tensor in group])
    yield from zip(positions, map(float, to_host(found)), strict=True)


def _measure_bucket(
    keys: list[Key], values: list[Tensor], origins: list[_Origin | None], *, magnitudes: bool
) -> _Bucket:
    matrix = as_matrix(values)
    moduli = matrix.abs()
    maxima: list[float] = moduli.amax(dim=1).tolist()  # NaN if any element is
    broken = [row for row, maximum in enumerate(maxima) if not math.isfinite(maximum)]
    return _Bucket(
        keys=keys,
        sizes=[value.numel() for value in values],
        origins=origins,
        norms=row_norms(matrix),
        maxima=maxima,
        nonzeros=nonzeros_of_moduli(moduli, has_nan=bool(broken)),
        nonfinite={row: count_nonfinite(values[row]) for row in broken},
        sample=_sample(matrix) if magnitudes else None,
        octaves=[] if magnitudes else [{}] * len(keys),
    )


def _sample(matrix: Tensor) -> Tensor:
    # A copy, because a view would keep the whole matrix in memory.
    return matrix[:, :: min(4, -(-matrix.shape[1] // MAGNITUDE_ELEMENTS))].contiguous()


def _stat(bucket: _Bucket, row: int, octaves: dict[int, int]) -> GradientStat:
    size = bucket.sizes[row]
    origin = bucket.origins[row] or _Origin(size, 1, size, None)
    whole = origin.exact or Exact(
        bucket.norms[row], bucket.maxima[row], bucket.nonfinite.get(row, 0)
    )
    # Every stored element occurs this often in the sum of squares.
    norm = float(whole.norm) * math.sqrt(origin.repeats)
    present = origin.stored * origin.repeats / origin.numel
    zero_share = (size - bucket.nonzeros[row]) / size * present + (1 - present)
    if origin.exact and zero_share == 1 and norm != 0:
        zero_share = (
            1 - 1 / origin.numel
        )  # the sample contains only zeros, although the tensor is not zero
    lowest, highest = min(octaves, default=0), max(octaves, default=-1)
    return GradientStat(
        numel=origin.numel,
        norm=norm,
        absolute_maximum=float(whole.maximum),
        zero_share=zero_share,
        nonfinite=int(whole.nonfinite) * origin.repeats,
        sampled=origin.exact is not None,
        lowest_exponent=lowest,
        magnitudes=tuple(octaves.get(exponent, 0) for exponent in range(lowest, highest + 1)),
    )
