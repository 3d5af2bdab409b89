"""Numbers of many steps as count, lowest, highest, mean and last."""

import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan

COLUMNS = ("counts", "broken", "lowest", "highest", "mean", "last", "lowest_at", "highest_at")
"""Names of the columns of a series."""


@dataclass(slots=True)
class Bucket:
    """What is known of the numbers of some steps."""

    count: float = 0
    """Finite numbers."""
    broken: float = 0
    """Numbers that are NaN or infinite."""
    lowest: float = inf
    highest: float = -inf
    mean: float = 0.0
    last: float = nan
    """The last of all, finite or not; NaN without any."""
    lowest_at: float = nan
    """Step of the lowest number."""
    highest_at: float = nan

    def add(self, value: float, step: int) -> None:
        """Take in the number of a further step."""
        self.last = value
        if not isfinite(value):
            self.broken += 1
            return
        self.count += 1
        if value < self.lowest:
            self.lowest, self.lowest_at = value, step
        if value > self.highest:
            self.highest, self.highest_at = value, step
        # A sum of large numbers could overflow: their mean cannot.
        self.mean += (value - self.mean) / self.count

    def cells(self) -> tuple[float, ...]:
        """Return the numbers in the order of `COLUMNS`."""
        return (
            self.count,
            self.broken,
            self.lowest,
            self.highest,
            self.mean,
            self.last,
            self.lowest_at,
            self.highest_at,
        )


def bucket_of(values: Sequence[float], steps: Sequence[int]) -> Bucket:
    """Return the bucket of numbers in order, with their steps."""
    # It is finite only if all numbers are: then the fast functions may be used.
    total = sum(values)
    if not values or not isfinite(total):
        bucket = Bucket()
        for value, step in zip(values, steps, strict=True):
            bucket.add(value, step)
        return bucket
    lowest, highest = min(values), max(values)
    return Bucket(
        len(values),
        0,
        lowest,
        highest,
        total / len(values),
        values[-1],
        steps[values.index(lowest)],
        steps[values.index(highest)],
    )


def joined(buckets: Iterable[Bucket]) -> Bucket:
    """Return the bucket of all steps of some buckets in order."""
    whole = Bucket()
    for one in buckets:
        count = whole.count + one.count
        if one.count:
            whole.mean += (one.mean - whole.mean) * (one.count / count)
        if one.count or one.broken:
            whole.last = one.last
        whole.count, whole.broken = count, whole.broken + one.broken
        # Also right without numbers: the lowest of none is infinite.
        if one.lowest < whole.lowest:
            whole.lowest, whole.lowest_at = one.lowest, one.lowest_at
        if one.highest > whole.highest:
            whole.highest, whole.highest_at = one.highest, one.highest_at
    return whole


def packed(buckets: Sequence[Bucket]) -> dict[str, bytes]:
    """Return buckets as columns of big-endian doubles, by name."""
    columns = zip(*(one.cells() for one in buckets), strict=True)
    return dict(zip(COLUMNS, map(written, columns), strict=False))


def unpacked(columns: Iterable[bytes]) -> list[Bucket]:
    """Return the buckets of columns in the order of `COLUMNS`."""
    return [Bucket(*cells) for cells in zip(*map(read, columns), strict=True)]


def written(numbers: Iterable[float]) -> bytes:
    """Return numbers as a column of big-endian doubles."""
    # Big-endian, because views read the bits in SQL from hexadecimal digits in their order.
    return _in_order(array("d", numbers)).tobytes()


def read(cell: bytes) -> "array[float]":
    """Return the numbers of a column."""
    return _in_order(array("d", cell))


def _in_order(numbers: "array[float]") -> "array[float]":
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
