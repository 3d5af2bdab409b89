"""The steps of a long run that are kept whole, and how many steps each stands for."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Protocol

from gradscope.frozen import dataclass
from gradscope.recording.events import Event
from gradscope.recording.evidence.summaries import (
    CosineSummary,
    SeriesKind,
    SeriesSummary,
    StepSummary,
)
from gradscope.recording.evidence.training import ContinuedRun
from gradscope.recording.records import Recording
from gradscope.recording.thinning.buckets import COLUMNS, Bucket, read, unpacked


@dataclass(frozen=True, slots=True)
class Span:
    """A number over some steps, of which a recording has only a summary."""

    first: int
    """Index of the first step."""
    count: int
    """Number of steps, those of other optimizers included."""
    bucket: Bucket

    @property
    def middle(self) -> int:
        """Step in the middle."""
        return self.first + self.count // 2


@dataclass(frozen=True)
class KeptSteps:
    """The steps of a run that a recording has whole; all of them in a short one."""

    recording: Recording

    @cached_property
    def summaries(self) -> tuple[StepSummary, ...]:
        """The summaries of the other steps."""
        return self.recording.evidence_of(StepSummary)

    @cached_property
    def _present(self) -> frozenset[int]:
        return frozenset(step.index for step in self.recording.steps if step.kind == "run")

    @cached_property
    def missing(self) -> int:
        """Number of steps that are not whole."""
        return sum(one.count - len(self._within(one)) for one in self.summaries)

    def _within(self, one: StepSummary) -> Sequence[int]:
        """Return the whole steps of a summary, in order."""
        start = bisect_left(self._ordered, one.first)
        return self._ordered[start : bisect_left(self._ordered, one.first + one.count)]

    @cached_property
    def _ordered(self) -> Sequence[int]:
        return sorted(self._present)

    @property
    def total(self) -> int:
        """Number of optimizer steps of the run."""
        return self.missing + sum(step.optimizer is not None for step in self.recording.steps)

    @cached_property
    def resumed(self) -> frozenset[int]:
        """Steps whose step before is not whole, or was made before the training was resumed.

        Their events are all that is known.
        """
        if not self.summaries:
            return self._continued
        first = min(self._present, default=0)
        return self._continued | {
            step for step in self._present if step > first and step - 1 not in self._present
        }

    @cached_property
    def _continued(self) -> frozenset[int]:
        """The first steps after a resumption."""
        return frozenset(one.step for one in self.recording.evidence_of(ContinuedRun))

    @cached_property
    def paused(self) -> frozenset[int]:
        """The first of each missing steps, and the first ones after a resumption."""
        if not self.summaries:
            return self._continued
        last = max(self._present, default=0)
        after = {step + 1 for step in self._present if step != last}
        return self._continued | (after - self._present)

    @cached_property
    def counts(self) -> Mapping[int, int]:
        """By step: number of steps that it stands for, if that is not one."""
        found: dict[int, int] = {}
        start = min((one.first for one in self.summaries), default=0)
        for one in self.summaries:
            kept = self._within(one)
            # The first and the last of a block lack what was before or behind them.
            end = one.block_first + one.block
            block = [step for step in kept if one.block_first <= step < end]
            carriers = block[1:-1] or kept
            rest = one.count - len(kept) + sum(step + 1 in self.paused for step in kept)
            # The step before all summaries has no successor either.
            rest += one.first == start and start in self.paused
            for turn, step in enumerate(carriers):
                # The first carriers stand for one step more, so that the total is exact.
                share = rest // len(carriers) + (turn < rest % len(carriers))
                if share:
                    found[step] = 1 + share
        return found

    def spans(self, kind: SeriesKind, optimizers: Sequence[int | None]) -> Iterator[Span]:
        """Yield what is known of a number of some optimizers' steps, in their order."""
        by_first = {one.first: one for one in self.summaries}
        found = self.recording.evidence_of(SeriesSummary)
        for series in sorted(found, key=attrgetter("first")):
            whole = by_first.get(series.first)
            if whole is None or series.kind != kind or series.optimizer not in optimizers:
                continue
            columns = (getattr(series, name) for name in COLUMNS)
            for turn, bucket in enumerate(unpacked(columns)):
                if bucket.count or bucket.broken:
                    yield Span(series.first + turn * whole.bucket, whole.bucket, bucket)

    def is_summarised(self, step: int) -> bool:
        """Return whether a summary counts a step; it may be whole as well."""
        at = bisect_right(self._starts, step) - 1
        return at >= 0 and step < self._ends[at]

    @cached_property
    def _starts(self) -> Sequence[int]:
        return sorted(one.first for one in self.summaries)

    @cached_property
    def _ends(self) -> Sequence[int]:
        return sorted(one.first + one.count for one in self.summaries)

    def cosines(self, site: int | None) -> Mapping[float, float]:
        """Return the cosines that clips at a line leave in summarised steps, with their counts.

        Each is the middle of a hundredth.
        """
        found: dict[float, float] = {}
        for one in self.recording.evidence_of(CosineSummary):
            if one.site == site:
                for hundredth, count in enumerate(read(one.counts), one.lowest):
                    # A cosine of 1 has a hundredth of its own, whose middle lies above 1.
                    middle = min((hundredth + 0.5) / 100, 1.0)
                    found[middle] = found.get(middle, 0.0) + count
        return found

    def steps_of_events(self, events: Iterable[Event]) -> int:
        """Return the number of steps that some events, one of a step, stand for."""
        return sum(self.counts.get(event.step, 1) for event in events)


class Counted(Protocol):
    """A record that stands for several steps."""

    @property
    def count(self) -> int:
        """Number of steps."""


def steps_of(found: Iterable[Counted]) -> int:
    """Return the number of steps that some of them stand for."""
    return sum(one.count for one in found)
