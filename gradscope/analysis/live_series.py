"""A number over all the steps of a run that goes on, in little memory."""

import math
from collections.abc import Callable
from typing import Literal

from gradscope.analysis.columns import Cells, Course, Extreme

_MOST = 256
"""Buckets: a series that is longer has neighbours in one."""

_Bucket = tuple[float, int]
"""What stands for some neighbouring numbers, and how many they are."""


class Series:
    """A number, step by step.

    Args:
        of_several: What stands for neighbouring steps where there are many.
    """

    def __init__(self, of_several: Literal["mean", "largest"]) -> None:
        self._join: Callable[[_Bucket, _Bucket], _Bucket]
        self._join = _mean if of_several == "mean" else _largest
        self._buckets: list[_Bucket] = []
        self._size = 1
        """How many numbers a bucket holds by now."""
        self._ends: tuple[float, ...] = ()
        self._lowest: Extreme | None = None
        self._highest: Extreme | None = None
        self._nonfinite = 0
        self._first_nonfinite: int | None = None

    @property
    def last(self) -> float | None:
        """The latest number; None where there is none."""
        return self._ends[-1] if self._ends else None

    def add(self, step: int, value: float | None) -> None:
        """Take the number of a further step; None is nothing measured."""
        if value is None:
            return
        self._ends = (*self._ends[:1], value)
        self._note(step, value)
        if self._buckets and self._buckets[-1][1] < self._size:
            self._buckets[-1] = self._join(self._buckets[-1], (value, 1))
            return
        if len(self._buckets) == _MOST:
            pairs = zip(self._buckets[::2], self._buckets[1::2], strict=True)
            self._buckets = [self._join(*pair) for pair in pairs]
            self._size *= 2
        self._buckets.append((value, 1))

    def _note(self, step: int, value: float) -> None:
        if not math.isfinite(value):
            self._nonfinite += 1
            if self._first_nonfinite is None:
                self._first_nonfinite = step
            return
        if self._lowest is None or value < self._lowest.value:
            self._lowest = Extreme(step=step, value=value)
        if self._highest is None or value > self._highest.value:
            self._highest = Extreme(step=step, value=value)

    def course(self, width: int) -> Course:
        """Return how it went, in no more than so many columns."""
        return Course(
            cells=self._cells(width),
            ends=self._ends,
            lowest=self._lowest,
            highest=self._highest,
            nonfinite=self._nonfinite,
            first_nonfinite=self._first_nonfinite,
        )

    def _cells(self, width: int) -> Cells:
        count = min(width, len(self._buckets))
        columns: dict[int, _Bucket] = {}
        for turn, bucket in enumerate(self._buckets):
            place = turn * count // len(self._buckets)
            columns[place] = self._join(columns[place], bucket) if place in columns else bucket
        return tuple(value for value, _ in columns.values())


def _mean(one: _Bucket, other: _Bucket) -> _Bucket:
    count = one[1] + other[1]
    return one[0] * (one[1] / count) + other[0] * (other[1] / count), count


def _largest(one: _Bucket, other: _Bucket) -> _Bucket:
    # A NaN is neither larger nor smaller, and stays.
    has_first = math.isnan(one[0]) or one[0] >= other[0]
    return one[0] if has_first else other[0], one[1] + other[1]
