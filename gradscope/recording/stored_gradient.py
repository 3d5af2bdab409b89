"""Gradients that were kept, exactly or as sketches, and how far two of them agree."""

import math
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, get_args

from gradscope.errors import GradscopeError
from gradscope.recording.count_sketch import BUCKETS, sketch
from gradscope.recording.inner_products import inner_products

Numbers = TypeVar("Numbers", "array[float]", "array[int]")

KeptForm = Literal["exact", "sparse", "sketch"]
"""`exact`: every element. `sparse`: the elements of some rows, and zero in all others. `sketch`: a
count sketch, from which inner products can be estimated."""

KeepMode = Literal["none", "exact", "sketch"]
"""How gradients are kept. Of those that have no more elements than a sketch has buckets, all
elements are kept in both ways."""


def check_keep_mode(given: object) -> None:
    """Make sure that a value given in Python says how to keep gradients.

    Raises:
        GradscopeError: It does not.
    """
    if given not in get_args(KeepMode):
        raise GradscopeError(
            f"keep_gradients is {given!r}, expected one of {', '.join(get_args(KeepMode))}"
        )


PART_ELEMENTS = 1 << 22
"""So many elements are read at once: some gradients are larger than is good to hold."""

_DOUBLE = frozenset({"float64", "complex128"})


@dataclass(frozen=True, slots=True)
class KeptPart:
    """Some elements of a kept gradient, as they stand in memory: little-endian, row by row."""

    values: bytes
    """float64 where the gradient was, else float32, which holds shorter types exactly. Complex
    numbers are pairs."""
    rows: bytes = b""
    """int64, ascending: the places of the rows that the values are of; of a sparse gradient. A row
    is all that one place in the sparse dimensions has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptGradient:
    """The gradient of one parameter in one step, as the optimizer saw it."""

    step: int
    parameter: int
    form: KeptForm
    shape: tuple[int, ...]
    dtype: str
    """Of the gradient as it was, as torch writes it, without the `torch.` prefix: `bfloat16`."""
    parts: Sequence[KeptPart]
    """Of `PART_ELEMENTS` elements each, but for the last. Those of a file are read when they are
    asked for."""

    @property
    def is_double(self) -> bool:
        """Whether the values are float64, and not float32."""
        return self.dtype in _DOUBLE

    @property
    def numel(self) -> int:
        """How many real numbers the gradient consists of."""
        return math.prod(self.shape) * (2 if self._is_complex else 1)

    @property
    def _is_complex(self) -> bool:
        return self.dtype.startswith("complex")

    def values(self) -> "Iterator[array[float]]":
        """Yield the numbers, in arrays: of a sketch the buckets, else all, with the zeros.

        Two gradients of one shape come in arrays of the same lengths.
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
        """Yield the elements of a sparse gradient with its zeros between them."""
        zero, none = self._floats(bytes(8 if self.is_double else 4)), (self.numel, self._floats())
        runs = self._runs()
        start, run = next(runs, none)
        for begins in range(0, self.numel, PART_ELEMENTS):
            window = zero * min(self.numel - begins, PART_ELEMENTS)
            ends = begins + len(window)
            while start < ends:
                taken = min(len(run), ends - start)
                window[start - begins : start - begins + taken] = run[:taken]
                start, run = (start + taken, run[taken:]) if taken < len(run) else next(runs, none)
            yield window

    def _runs(self) -> "Iterator[tuple[int, array[float]]]":
        """Yield the rows of a sparse gradient, each with the place of its first number."""
        for part in self.parts:
            rows, values = _native(array("q", part.rows)), self._floats(part.values)
            length = len(values) // len(rows) if rows else 0
            for position, row in enumerate(rows):
                yield row * length, values[position * length : (position + 1) * length]

    def sketched(self) -> "KeptGradient":
        """Return the sketch of a gradient; of a sketch itself."""
        if self.form == "sketch":
            return self
        buckets = sketch(self.values())
        kind = "d" if self.is_double else "f"
        part = KeptPart(_native(array(kind, buckets)).tobytes())
        return replace(self, form="sketch", parts=(part,))

    def has_elements_of(self, other: "KeptGradient") -> bool:
        """Return whether both consist of as many numbers, arranged alike."""
        return self.shape == other.shape and self._is_complex == other._is_complex


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What tells how far two gradients agree; those of several parameters add up.

    All are sums over elements. A gradient with an element that is not finite leaves none of its
    sums finite.
    """

    dot: float
    """Of the products."""
    first: float
    """Of the squares."""
    second: float
    difference: float
    """Of the squared differences."""
    is_estimate: bool
    """Whether any of it comes from sketches."""

    def __add__(self, other: "Agreement") -> "Agreement":
        """Return the agreement of both pairs taken together."""
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

        None where one is all zeros and has no direction; NaN where an element is not finite.
        """
        if not self._is_finite:
            return math.nan
        if self.first == 0 or self.second == 0:
            return None
        if self.difference == 0:
            return 1.0  # where roots are rounded, the quotient is not
        return min(1.0, max(-1.0, self.dot / math.sqrt(self.first) / math.sqrt(self.second)))

    @property
    def cosine_error(self) -> float | None:
        """Standard error of the cosine: 0 where it is exact, None where there is none.

        Source: that of the cosine in a random projection to `BUCKETS` dimensions, to which a count
        sketch comes close; measured in `tests/capture/test_gradient_keeping.py`.
        """
        cosine = self.cosine
        if cosine is None or math.isnan(cosine):
            return None
        return (1 - cosine * cosine) / math.sqrt(BUCKETS) if self.is_estimate else 0.0

    @property
    def relative_difference(self) -> float:
        """Norm of the difference over the norm of the larger: 0 for equal ones, at most 2.

        NaN where an element is not finite. From sketches, with a standard error of 1.6 % of itself.
        """
        if not self._is_finite:
            return math.nan
        larger = max(self.first, self.second)
        return math.sqrt(self.difference) / math.sqrt(larger) if larger else 0.0

    @property
    def _is_finite(self) -> bool:
        return math.isfinite(self.first) and math.isfinite(self.second)


def agreement(first: KeptGradient, second: KeptGradient) -> Agreement | None:
    """Return how far two gradients agree; None where their shapes are different.

    Types may differ, as float32 and bfloat16, and so may forms: where one of them is a sketch, a
    sketch is made of the other.
    """
    if not first.has_elements_of(second):
        return None
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


def cosine(first: KeptGradient, second: KeptGradient) -> float | None:
    """Return the cosine of the angle between two gradients.

    None where their shapes are different, or where one is all zeros; NaN where an element is not
    finite.
    """
    found = agreement(first, second)
    return None if found is None else found.cosine


def relative_difference(first: KeptGradient, second: KeptGradient) -> float | None:
    """Return the norm of the difference of two gradients over the norm of the larger, 0 to 2.

    None where their shapes are different; NaN where an element is not finite.
    """
    found = agreement(first, second)
    return None if found is None else found.relative_difference


def _native(numbers: "Numbers") -> "Numbers":
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
