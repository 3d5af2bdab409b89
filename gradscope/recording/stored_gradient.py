"""Gradients stored exactly or as count sketches, and how far two of them agree."""

import math
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import mul, sub
from typing import Literal, NamedTuple, TypeVar

from gradscope.frozen import dataclass

BUCKETS = 4_096

HASH_FIRST, HASH_SECOND, HASH_HIGH = 0x7FEB352D, 0x846CA68B, 0x9E3779B1
"""Multipliers of a 32-bit hash without measurable bias, and one for index bits above 31. Source:
Wellons, Prospecting for Hash Functions, 2018."""

HASH_SIGN = 21
"""The bit for the sign: far from those for the bucket."""

_WORD = 0xFFFFFFFF

Vector = Iterable["array[float]"]
"""A vector in parts."""


def sketch(vector: Vector) -> "array[float]":
    """Return the buckets of a vector; uses numpy if it is installed."""
    found = _by_numpy()
    return found(vector) if found else sketch_in_python(vector)


def sketch_in_python(vector: Vector) -> "array[float]":
    """Return the buckets of a vector, about a million elements per second."""
    buckets = array("d", bytes(8 * BUCKETS))
    index = 0
    for part in vector:
        for value in part:
            # Integers of Python have no width: the mask makes products wrap as those of 32 bits do.
            mixed = (index & 0x7FFFFFFF) ^ ((index >> 31) * HASH_HIGH & _WORD)
            mixed = (mixed ^ mixed >> 16) * HASH_FIRST & _WORD
            mixed = (mixed ^ mixed >> 15) * HASH_SECOND & _WORD
            mixed ^= mixed >> 16
            # Random signs make what shares a bucket cancel on average, so that products stay
            # unbiased.
            buckets[mixed % BUCKETS] += -value if mixed >> HASH_SIGN & 1 else value
            index += 1
    return buckets


def _by_numpy() -> "Callable[[Vector], array[float]] | None":
    try:
        import numpy
    except ImportError:
        return None

    def found(vector: Vector) -> "array[float]":
        buckets, start = numpy.zeros(BUCKETS), 0
        for part in vector:
            indices = numpy.arange(start, start + len(part), dtype=numpy.uint64)
            start += len(part)
            high = (indices >> 31).astype(numpy.uint32) * numpy.uint32(HASH_HIGH)
            mixed = (indices & 0x7FFFFFFF).astype(numpy.uint32) ^ high
            mixed = (mixed ^ mixed >> 16) * numpy.uint32(HASH_FIRST)
            mixed = (mixed ^ mixed >> 15) * numpy.uint32(HASH_SECOND)
            mixed ^= mixed >> 16
            values = numpy.frombuffer(part, dtype=part.typecode).astype(numpy.float64)
            signed = numpy.where(mixed >> HASH_SIGN & 1, -values, values)
            positions = (mixed % BUCKETS).astype(numpy.int64)
            # Not `buckets[positions] += signed`, which counts a position once however often it
            # occurs.
            buckets += numpy.bincount(positions, signed, minlength=BUCKETS)
        return array("d", buckets.tobytes())

    return found


class InnerProducts(NamedTuple):
    """The inner products of two vectors of one length."""

    dot: float
    first: float
    """Inner product of the first vector with itself."""
    second: float
    """Inner product of the second vector with itself."""
    difference: float
    """Inner product of the difference with itself."""


def inner_products(first: "array[float]", second: "array[float]") -> InnerProducts:
    """Return the inner products of two vectors.

    It uses numpy if it is installed: in Python alone, some hundred million elements take minutes.
    """
    found = _summed_by_numpy()
    return found(first, second) if found else in_python(first, second)


def in_python(first: "array[float]", second: "array[float]") -> InnerProducts:
    """Return the inner products of two vectors, about six million elements per second."""
    difference = array("d", map(sub, first, second))
    return InnerProducts(
        dot=sum(map(mul, first, second), 0.0),
        first=_square(first),
        second=_square(second),
        difference=_square(difference),
    )


def _square(values: "array[float]") -> float:
    return sum(map(mul, values, values), 0.0)


def _summed_by_numpy() -> "Callable[[array[float], array[float]], InnerProducts] | None":
    try:
        import numpy
    except ImportError:
        return None

    def found(first: "array[float]", second: "array[float]") -> InnerProducts:
        one, other = (
            # Before the products: in float32, long sums lose digits.
            numpy.frombuffer(values, dtype=values.typecode).astype(numpy.float64)
            for values in (first, second)
        )
        # Non-finite results are expected here, and need no warning.
        with numpy.errstate(all="ignore"):
            apart = one - other
            products = (one @ other, one @ one, other @ other, apart @ apart)
        return InnerProducts(*map(float, products))

    return found


Numbers = TypeVar("Numbers", "array[float]", "array[int]")

StoredForm = Literal["exact", "sparse", "sketch"]
"""`exact`: every element. `sparse`: the elements of some rows; all others are zero. `sketch`: a
count sketch, from which inner products can be estimated."""

KeepMode = Literal["none", "exact", "sketch"]
"""How gradients are stored. If a sketch would have more buckets than elements, all are stored."""

PART_ELEMENTS = 1 << 22
"""Number of elements read at once: some gradients are too large for that."""

_DOUBLE = frozenset({"float64", "complex128"})


@dataclass(frozen=True, slots=True)
class StoredPart:
    """Some elements of a stored gradient, as in memory: little-endian, row by row."""

    values: bytes
    """float64 for float64 gradients, otherwise float32, which represents shorter types exactly.
    Complex numbers are pairs."""
    rows: bytes = b""
    """int64, ascending: for a sparse gradient, indices of the rows of the values. A row has all
    elements of one index in the sparse dimensions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGradient:
    """The gradient of one parameter in one step, as the optimizer saw it."""

    step: int
    parameter: int
    form: StoredForm
    shape: tuple[int, ...]
    dtype: str
    """Original dtype in torch's notation, without the `torch.` prefix: `bfloat16`."""
    parts: Sequence[StoredPart]
    """Parts of `PART_ELEMENTS` elements each, except the last. A file's are read on access."""

    @property
    def is_double(self) -> bool:
        """Whether the values are float64, and not float32."""
        return self.dtype in _DOUBLE

    @property
    def numel(self) -> int:
        """Number of real numbers in the gradient."""
        return math.prod(self.shape) * (2 if self._is_complex else 1)

    @property
    def _is_complex(self) -> bool:
        return self.dtype.startswith("complex")

    def values(self) -> "Iterator[array[float]]":
        """Yield the numbers in arrays: the buckets of a sketch, otherwise all with the zeros.

        Two gradients of one shape give arrays of the same lengths.
        """
        if self.form == "sparse":
            yield from self._unfolded()
            return
        for part in self.parts:
            yield self._floats(part.values)

    def _floats(self, stored: bytes = b"") -> "array[float]":
        floats = array("d", stored) if self.is_double else array("f", stored)
        return _native(floats)

    def _unfolded(self) -> "Iterator[array[float]]":
        """Yield the elements of a sparse gradient with the zeros between them."""
        zero, none = self._floats(bytes(8 if self.is_double else 4)), (self.numel, self._floats())
        runs = self._runs()
        start, run = next(runs, none)
        # In the same windows as a dense gradient: an embedding's zeros might not fit into memory.
        for begins in range(0, self.numel, PART_ELEMENTS):
            window = zero * min(self.numel - begins, PART_ELEMENTS)
            ends = begins + len(window)
            while start < ends:
                taken = min(len(run), ends - start)
                window[start - begins : start - begins + taken] = run[:taken]
                start, run = (start + taken, run[taken:]) if taken < len(run) else next(runs, none)
            yield window

    def _runs(self) -> "Iterator[tuple[int, array[float]]]":
        """Yield the rows of a sparse gradient, each with the index of its first number."""
        for part in self.parts:
            rows, values = _native(array("q", part.rows)), self._floats(part.values)
            length = len(values) // len(rows) if rows else 0
            for position, row in enumerate(rows):
                yield row * length, values[position * length : (position + 1) * length]

    def sketched(self) -> "StoredGradient":
        """Return the sketch of a gradient; a sketch itself."""
        if self.form == "sketch":
            return self
        buckets = sketch(self.values())
        kind = "d" if self.is_double else "f"
        part = StoredPart(_native(array(kind, buckets)).tobytes())
        return replace(self, form="sketch", parts=(part,))

    def has_elements_of(self, other: "StoredGradient") -> bool:
        """Return whether both have the same number and layout of elements."""
        return self.shape == other.shape and self._is_complex == other._is_complex


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Sums that show how far two gradients agree. Those of several parameters can be added.

    All are sums over elements. A gradient with a non-finite element makes all of its sums
    non-finite.
    """

    dot: float
    """Sum of the products."""
    first: float
    """Sum of the squares of the first."""
    second: float
    difference: float
    """Sum of the squared differences."""
    is_estimate: bool
    """Whether any of it comes from sketches."""

    def __add__(self, other: "Agreement") -> "Agreement":
        """Return the agreement of both pairs together."""
        return Agreement(
            dot=self.dot + other.dot,
            first=self.first + other.first,
            second=self.second + other.second,
            difference=self.difference + other.difference,
            is_estimate=self.is_estimate or other.is_estimate,
        )

    @property
    def cosine(self) -> float | None:
        """Cosine of the angle between them, -1 to 1.

        None if one is all zeros and has no direction; NaN if an element is not finite.
        """
        if not self._is_finite:
            return math.nan
        if self.first == 0 or self.second == 0:
            return None
        if self.difference == 0:
            return 1.0  # rounded roots could exceed 1, the quotient cannot
        # Root by root, because the product of both squares may overflow; rounding may exceed 1.
        return min(1.0, max(-1.0, self.dot / math.sqrt(self.first) / math.sqrt(self.second)))

    @property
    def relative_difference(self) -> float:
        """Norm of the difference over the norm of the larger: 0 for equal ones, at most 2.

        NaN if an element is not finite. From sketches, with a relative standard error of 1.6 %.
        """
        if not self._is_finite:
            return math.nan
        larger = max(self.first, self.second)
        return math.sqrt(self.difference) / math.sqrt(larger) if larger else 0.0

    @property
    def _is_finite(self) -> bool:
        return math.isfinite(self.first) and math.isfinite(self.second)


def agreement(first: StoredGradient, second: StoredGradient) -> Agreement | None:
    """Return how far two gradients agree; None if their shapes differ.

    Dtypes may differ, as float32 and bfloat16, and so may forms: if one is a sketch, a sketch of
    the other is made.
    """
    if not first.has_elements_of(second):
        return None
    # Sketching is linear: the difference of two sketches is the sketch of the difference.
    if "sketch" in (first.form, second.form):
        first, second = first.sketched(), second.sketched()
    parts = [
        inner_products(one, other)
        for one, other in zip(first.values(), second.values(), strict=True)
    ]
    return Agreement(
        dot=sum(part.dot for part in parts),
        first=sum(part.first for part in parts),
        second=sum(part.second for part in parts),
        difference=sum(part.difference for part in parts),
        is_estimate=first.form == "sketch",
    )


def cosine(first: StoredGradient, second: StoredGradient) -> float | None:
    """Return the cosine of the angle between two gradients.

    None if their shapes differ, or if one is all zeros; NaN if an element is not finite.
    """
    found = agreement(first, second)
    return None if found is None else found.cosine


def relative_difference(first: StoredGradient, second: StoredGradient) -> float | None:
    """Return the norm of the difference of two gradients over the norm of the larger, 0 to 2.

    None if their shapes differ; NaN if an element is not finite.
    """
    found = agreement(first, second)
    return None if found is None else found.relative_difference


def _native(numbers: "Numbers") -> "Numbers":
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
