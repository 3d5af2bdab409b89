"""Count sketches of vectors: short sums from which inner products can be estimated.

Each element is added to or subtracted from one of `BUCKETS` buckets, by a hash of its index. The
product of two sketches is then, in expectation, the product of the vectors. The hash is fixed, so
that sketches of two runs can be compared.

Source: Charikar, Chen, Farach-Colton, Finding Frequent Items in Data Streams, 2002.
"""

from array import array
from collections.abc import Callable, Iterable

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
            mixed = (index & 0x7FFFFFFF) ^ ((index >> 31) * HASH_HIGH & _WORD)
            mixed = (mixed ^ mixed >> 16) * HASH_FIRST & _WORD
            mixed = (mixed ^ mixed >> 15) * HASH_SECOND & _WORD
            mixed ^= mixed >> 16
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
            buckets += numpy.bincount(positions, signed, minlength=BUCKETS)
        return array("d", buckets.tobytes())

    return found
