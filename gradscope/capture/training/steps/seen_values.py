"""Remembers values of a parameter over any number of steps, in memory that does not grow."""

from collections.abc import Iterable

_BITS = 1 << 22
"""Size of the filter: half a megabyte."""


class SeenValues:
    """A Bloom filter of values: those that were added are known again for certain.

    Of other values, 1 in 500 passes for a known one after 100,000 steps, and 1 in 7 after a
    million.
    """

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, each: Iterable[bytes]) -> None:
        """Remember each of some values."""
        if not self._bits:
            self._bits = bytearray(_BITS // 8)
        bits = self._bits
        for one, other in map(_bits_of, each):
            bits[one >> 3] |= 1 << (one & 7)
            bits[other >> 3] |= 1 << (other & 7)

    def __contains__(self, values: bytes) -> bool:
        """Return whether values were added, or pass for some that were."""
        return bool(self._bits) and all(
            self._bits[bit >> 3] >> (bit & 7) & 1 for bit in _bits_of(values)
        )


def _bits_of(values: bytes) -> tuple[int, int]:
    number = hash(values)
    return number % _BITS, (number >> 32) % _BITS
