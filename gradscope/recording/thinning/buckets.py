"""Numbers of many steps as count, lowest, highest, mean and last."""

import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan

COLUMNS = ("counts", "broken", "lowest", "highest", "mean", "last")
"""Names of the columns of a summary."""


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

    def add(self, value: float) -> None:
        """Take in the number of a further step."""
        self.last = value
        if not isfinite(value):
            self.broken += 1
            return
        self.count += 1
        self.lowest = min(self.lowest, value)
        self.highest = max(self.highest, value)
        self.mean += (value - self.mean) / self.count

    def cells(self) -> tuple[float, ...]:
        """Return the numbers in the order of `COLUMNS`."""
        return (self.count, self.broken, self.lowest, self.highest, self.mean, self.last)


def bucket_of(values: Sequence[float]) -> Bucket:
    """Return the bucket of numbers in order."""
    total = sum(values)
    if not values or not isfinite(total):
        bucket = Bucket()
        for value in values:
            bucket.add(value)
        return bucket
    count = len(values)
    return Bucket(count, 0, min(values), max(values), total / count, values[-1])


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
        whole.lowest = min(whole.lowest, one.lowest)
        whole.highest = max(whole.highest, one.highest)
    return whole


def packed(buckets: Sequence[Bucket]) -> dict[str, bytes]:
    """Return buckets as columns of big-endian doubles, by name."""
    columns = zip(*(one.cells() for one in buckets), strict=True)
    return dict(zip(COLUMNS, map(_written, columns), strict=True))


def unpacked(columns: Iterable[bytes]) -> list[Bucket]:
    """Return the buckets of columns in the order of `COLUMNS`."""
    return [Bucket(*cells) for cells in zip(*map(_read, columns), strict=True)]


def _written(numbers: Iterable[float]) -> bytes:
    return _in_order(array("d", numbers)).tobytes()


def _read(cell: bytes) -> "array[float]":
    return _in_order(array("d", cell))


def _in_order(numbers: "array[float]") -> "array[float]":
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
