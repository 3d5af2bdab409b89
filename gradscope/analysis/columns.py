"""Many steps in a few columns: the curves of a run."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from statistics import fmean
from typing import Self

from gradscope.analysis.kept_steps import Span
from gradscope.analysis.training_run import CurveKind, RunStep, TrainingRun
from gradscope.frozen import dataclass
from gradscope.recording.thinning.buckets import Bucket

Cells = tuple[float | None, ...]
"""One number per column; None if not measured."""


class Columns:
    """Which column a step is drawn in; a column holds neighbouring steps."""

    def __init__(self, steps: Sequence[int], count: int, *, has_gaps: bool = False) -> None:
        self.count = min(count, len(steps))
        self.steps = steps
        first, last = (min(steps, default=0), max(steps, default=-1)) if has_gaps else (0, -1)
        self._first, self._length = first, last - first + 1 if has_gaps else len(steps)
        """First step and number of steps, if those that are not whole count too."""
        self._has_gaps = has_gaps
        self._positions = {
            step: self._column(step if has_gaps else turn) for turn, step in enumerate(steps)
        }

    @classmethod
    def over(cls, run: TrainingRun, width: int) -> Self:
        """Return at most this many columns for the steps of a run.

        Where optimizers take turns, each column has room for a step of every one.
        """
        turns = Counter(step.optimizer for step in run.steps)
        count = min(width, max(turns.values(), default=0))
        return cls([step.step for step in run.steps], count, has_gaps=run.missing > 0)

    @property
    def first_steps(self) -> tuple[int, ...]:
        """The first step of each column."""
        if self._has_gaps:
            starts = (position * self._length for position in range(self.count))
            # A column begins at the first step whose quotient reaches it: rounding is up.
            return tuple(self._first - (-start // self.count) for start in starts)
        # A dict keeps the last entry: backwards, that is the first step of a column.
        firsts = {position: step for step, position in reversed(self._positions.items())}
        return tuple(firsts[position] for position in range(self.count))

    @property
    def ends(self) -> list[tuple[int, int]]:
        """The first and the last of these steps in each column; its start where it has none."""
        held: dict[int, tuple[int, int]] = {}
        for step in self.steps:
            position = self._positions[step]
            held[position] = (held.get(position, (step, step))[0], step)
        starts = self.first_steps
        return [held.get(column, (starts[column],) * 2) for column in range(self.count)]

    @property
    def widest(self) -> int:
        """Largest number of steps per column."""
        return math.ceil(self._length / self.count) if self.count else 0

    def position(self, step: int) -> int | None:
        """Return the column of a step, counted from 0; None of a step that is not among these."""
        return self._positions.get(step)

    def _column(self, step: int) -> int:
        return (step - self._first) * self.count // self._length

    def _of_spans(self, spans: Iterable[Span]) -> Iterator[tuple[int, Bucket]]:
        for span in spans:
            if self._first <= span.middle < self._first + self._length and self.count:
                yield self._column(span.middle), span.bucket

    def largest(
        self, measured: Iterable[tuple[int, float | None]], spans: Iterable[Span] = ()
    ) -> Cells:
        """Return the largest number of each column; NaN if one is.

        Args:
            measured: Steps, and what was measured there; None where there was nothing to measure.
            spans: What is known of steps that are not whole.
        """
        cells: list[float | None] = [None] * self.count
        seen: set[int] = set()
        of_spans = (
            (position, math.nan if bucket.broken else bucket.highest)
            for position, bucket in self._of_spans(spans)
        )
        of_steps = ((self.position(step), value) for step, value in measured)
        for position, value in chain(of_steps, of_spans):
            if position is None:
                continue
            seen.add(position)
            known = cells[position]
            # A NaN is neither larger nor smaller, and stays.
            if known is None or (value is not None and known == known and not value <= known):
                cells[position] = value
        return held(cells, seen)

    def mean(self, measured: Iterable[tuple[int, float]], spans: Iterable[Span] = ()) -> Cells:
        """Return the mean of each column's numbers; NaN or infinite if one is."""
        values: list[list[float]] = [[] for _ in range(self.count)]
        for step, value in measured:
            position = self.position(step)
            if position is not None:
                values[position].append(value)
        for position, bucket in self._of_spans(spans):
            values[position].append(math.nan if bucket.broken else bucket.mean)
        seen = {position for position, column in enumerate(values) if column}
        return held([_mean(column) if column else None for column in values], seen)


def _mean(values: list[float]) -> float:
    # An infinity and its opposite have no mean, and raise in `fmean`.
    return fmean(values) if all(map(math.isfinite, values)) else math.nan


def held(cells: Sequence[float | None], seen: Collection[int]) -> Cells:
    """Return the cells; a gap between two measured cells repeats the earlier one.

    Not every step is measured; after the last measured one nothing is known.
    """
    filled = list(cells)
    for position in range(1, max(seen, default=0)):
        if position not in seen:
            filled[position] = filled[position - 1]
    return tuple(filled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extreme:
    """The largest or smallest number, and its step."""

    value: float
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How a number went over the steps."""

    cells: Cells
    ends: tuple[float, ...]
    """First and last number; a single number appears once."""
    lowest: Extreme | None
    """Lowest finite value; the first one of several equal ones."""
    highest: Extreme | None
    nonfinite: int
    """Number of steps in which it was NaN or infinite."""
    first_nonfinite: int | None
    """First such step."""


def course(measured: Sequence[tuple[int, float]], cells: Cells) -> Course:
    """Return the course of numbers that were measured at steps, which the cells show."""
    finite = [item for item in measured if math.isfinite(item[1])]
    broken = [step for step, value in measured if not math.isfinite(value)]
    lowest = min(finite, key=lambda item: item[1], default=None)
    highest = max(finite, key=lambda item: item[1], default=None)
    return Course(
        cells=cells,
        ends=tuple(value for _, value in (*measured[:1], *measured[1:][-1:])),
        lowest=None if lowest is None else Extreme(step=lowest[0], value=lowest[1]),
        highest=None if highest is None else Extreme(step=highest[0], value=highest[1]),
        nonfinite=len(broken),
        first_nonfinite=broken[0] if broken else None,
    )


_WHOLE = 0.999
"""Share of a norm above which it counts as unclipped, to allow for rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A number over the steps of one optimizer."""

    kind: CurveKind
    optimizer: int
    """Index among the run's optimizers."""
    course: Course


def curves(run: TrainingRun, columns: Columns, optimizers: int) -> tuple[Curve, ...]:
    """Return the curves of the first optimizers, without those that were never measured."""
    by_optimizer: dict[int, list[RunStep]] = {}
    for step in run.steps:
        by_optimizer.setdefault(step.optimizer, []).append(step)
    return tuple(
        curve
        for position in sorted(by_optimizer)[:optimizers]
        for curve in _curves(
            position, by_optimizer[position], columns, run.summaries.get(position, {})
        )
    )


def measured_curves(steps: Sequence[RunStep]) -> dict[CurveKind, list[tuple[int, float]]]:
    """Return the measurements in the steps of one optimizer, each number with its step."""
    is_cut = any(map(_is_cut, steps))
    measured: dict[CurveKind, list[tuple[int, float | None]]] = {
        "loss": [(step.step, step.loss) for step in steps],
        "norm": [(step.step, step.grad_norm) for step in steps],
        "raw": [(step.step, step.norm_before_clip) for step in steps] if is_cut else [],
        "update": [(step.step, step.update_ratio) for step in steps],
        "rate": [(step.step, step.learning_rate) for step in steps],
    }
    known: dict[CurveKind, list[tuple[int, float]]] = {
        kind: [(step, value) for step, value in values if value is not None]
        for kind, values in measured.items()
    }
    # The optimizer's title has a constant learning rate.
    # So a rate takes two different values, and `True` counts as one.
    return {
        kind: values
        for kind, values in known.items()
        if len({value for _, value in values}) > (kind == "rate")
    }


def _curves(
    position: int,
    steps: list[RunStep],
    columns: Columns,
    spans: Mapping[CurveKind, Sequence[Span]],
) -> Iterator[Curve]:
    for kind, known in measured_curves(steps).items():
        found = spans.get(kind, ())
        cells = columns.mean(known, found) if kind == "loss" else columns.largest(known, found)
        whole = sorted({*known, *envelope(found)}) if found else known
        yield Curve(kind=kind, optimizer=position, course=course(whole, cells))


def envelope(spans: Iterable[Span]) -> Iterator[tuple[int, float]]:
    """Yield the lowest and the highest number of steps that are not all whole."""
    for span in spans:
        if span.bucket.count:
            yield int(span.bucket.lowest_at), span.bucket.lowest
            yield int(span.bucket.highest_at), span.bucket.highest
        if span.bucket.broken:
            yield span.middle, math.nan


def _is_cut(step: RunStep) -> bool:
    """Return whether a clip has left less of a norm than there was."""
    before, after = step.norm_before_clip, step.grad_norm
    return before is not None and after is not None and not after >= _WHOLE * before
