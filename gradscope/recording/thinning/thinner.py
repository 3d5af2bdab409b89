"""Thins out a recording behind its writer: old steps become summaries, and stay whole in part."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

from gradscope.frozen import dataclass
from gradscope.recording.evidence.summaries import LimitRecord
from gradscope.recording.records import CapturedStep, EventRecord, StepRecord
from gradscope.recording.repetitions import RepeatedSteps, Sources, unfolded
from gradscope.recording.tables import EVENTS, REPEATED_STEPS, STEPS, evidence_tables
from gradscope.recording.thinning.chunks import (
    TOGETHER,
    Chunk,
    Whole,
    cosines_of,
    merged,
    series_of,
    tables_of_steps,
    whole_step,
)
from gradscope.recording.thinning.readings import Reading, Readings
from gradscope.recording.thinning.room import (
    CLOSING,
    FOLDED,
    LED,
    CapturesKept,
    Room,
    follows_large_update,
)
from gradscope.recording.writer import RecordingWriter

_BEFORE, _AFTER = 128, 10
"""Steps before and after an event that are kept: with so many before it, rules compare a spike."""
_CHECKED = 16
"""Number of steps between two checks of the size of the file."""
_FULL, _EASED, _SHRUNK = 0.85, 0.75, 0.6
"""Shares of the limit: from the first on less is kept, until the second is reached, or the third if
there was no room for a step."""


@dataclass(frozen=True, slots=True)
class _Repeated:
    """A row of steps that repeat others, not yet folded."""

    steps: RepeatedSteps
    row: int


class Thinner:
    """Keeps a recording within its room. All is called inside the transactions of its writer."""

    def __init__(self, writer: RecordingWriter, room: Room) -> None:
        self._writer, self._room = writer, room
        self._readings = Readings()
        self._waiting: deque[Reading] = deque()
        """Readings of the steps that are not folded."""
        self._open: deque[Whole | _Repeated] = deque()
        self._levels: list[deque[Chunk]] = []
        self._pinned: dict[int, Whole] = {}
        """Steps in summaries that repeated steps refer to."""
        self._passed: dict[int, Whole] = {}
        """Steps that are being folded."""
        self._important: dict[int, float] = {}
        """By step: its importance."""
        self._around: Set[int] = frozenset()
        self._head: list[Whole | _Repeated] = []
        """The first steps, as long as all are kept whole."""
        self._head_readings: list[Reading] = []
        self._head_chunks: list[Chunk] = []
        """The summary of the first steps, once they are not."""
        self._captures = CapturesKept(writer)
        self._lost_events = self._lost_gradients = self._lost_norms = 0
        self._told: LimitRecord | None = None
        self._check_at = _CHECKED
        self._first, self._next = FOLDED, 0
        """First step that is not folded, and the one after the last."""
        self.is_tight = False
        """Whether there is room for events only."""
        self._is_full = False
        """Whether the file has come near its limit."""
        self.noted: list[Reading] = []
        """Readings of the steps with events since this list was emptied."""
        self.in_use: Callable[[], Set[int]] = frozenset
        """Returns the steps that further steps may repeat."""

    def next_indices(self) -> dict[str, int]:
        """Return the lengths of the tables, for `take`."""
        return {table: self._writer.next_index(table) for table in tables_of_steps()}

    def take(
        self,
        starts: dict[str, int],
        record: StepRecord,
        events: tuple[EventRecord, ...],
        captured: Sequence[CapturedStep],
    ) -> None:
        """Take note of a step that was written, and thin out what is old."""
        for one in captured:
            self._captures.add(one)
        self._next = record.index + 1
        self._open.append(whole_step(self._writer, starts, record, events))
        self._note(self._readings.of_step(record.index, events))
        self._fold()

    def repeat(self, steps: RepeatedSteps) -> None:
        """Write steps that repeat others, in rows that are folded together."""
        with self.reserve():  # they are small
            self._repeat(steps)

    def _repeat(self, steps: RepeatedSteps) -> None:
        known = self._known(steps.sources)
        events = {index: one.events for index, one in known.items()}
        for part in _parts(steps, {index: _losses(one) for index, one in events.items()}):
            row = self._writer.next_index(REPEATED_STEPS.name)
            self._writer.add(REPEATED_STEPS, [part])
            self._open.append(_Repeated(part, row))
            for reading in self._readings.of_repeated(part, events):
                self._note(reading)
            self._next = part.first + part.count
            self._fold()

    def _known(self, sources: Sequence[int]) -> dict[int, Whole]:
        """Return the steps that others repeat: they are whole as long as they are in use."""
        wanted = set(sources)
        held = self._pinned | self._passed
        found = {step: held[step] for step in wanted & set(held)}
        for one in self._open if len(found) < len(wanted) else ():
            if isinstance(one, Whole) and one.step in wanted:
                found[one.step] = one
        return found

    def _note(self, reading: Reading) -> None:
        (self._waiting if reading.step >= FOLDED else self._head_readings).append(reading)
        if reading.importance:
            led = reading.loss_jumps and follows_large_update(self._writer, self._open, reading)
            self._important[reading.step] = LED if led else reading.importance
            self.noted.append(reading)
            self._weigh()

    def _weigh(self) -> None:
        """Choose the steps to keep around the most important ones."""
        around: set[int] = set()
        ranked = sorted(self._important.items(), key=lambda item: -item[1])
        for count, (step, _) in enumerate(ranked):
            more = range(max(step - _BEFORE, FOLDED), step + _AFTER + 1)
            # All less important ones are forgotten, so that the list does not grow with the run.
            if len(around.union(more)) > self._room.around:
                dropped = [step for step, _ in ranked[count:]]
                for one in dropped:
                    del self._important[one]
                self._lost_events += len(dropped)
                break
            around.update(more)
        lost, self._around = self._around - around, around
        self._drop_steps(lost)

    def _thin_captures(self) -> None:
        self._drop_steps(self._captures.thin(self._room.captured, self._around))

    def _drop_steps(self, lost: Set[int]) -> None:
        """Delete steps of summaries that need no longer be whole."""
        for chunk in self._chunks() if lost else ():
            if not lost.isdisjoint(chunk.whole):
                self._drop(chunk)

    def _chunks(self) -> Iterator[Chunk]:
        return chain(self._head_chunks, *self._levels)

    def _drop(self, chunk: Chunk) -> None:
        # Rules read in the events of its step what follows a captured backward: who steps with it.
        chunk.drop(self._writer, self._around | self._captures.steps | set(self._pinned))
        if not self._room.norms:
            chunk.drop_norms(self._writer, self._room.measured)

    def _fold(self) -> None:
        while self._next - self._first - FOLDED >= self._room.recent:
            with self.reserve():
                self._fold_next()
        if self._next >= self._check_at:
            self._check_at = self._next + _CHECKED
            with self.reserve():
                self._ease()

    def _fold_next(self) -> None:
        first = self._first
        self._first = end = first + FOLDED
        passed: list[Whole | _Repeated] = []
        while self._open and _start(self._open[0]) < end:
            passed.append(self._open.popleft())
        self._head += [one for one in passed if _start(one) < FOLDED]
        own = [one for one in passed if _start(one) >= first]
        readings = []
        while self._waiting and self._waiting[0].step < end:
            readings.append(self._waiting.popleft())
        block = _block(range(first, end), self._room.block, own)
        self._add(0, self._folded(range(first, end), block, passed, readings))
        self._fold_head()

    def _fold_head(self) -> None:
        """Put a summary in place of most of the first steps, if there is no room for all."""
        if self._room.first == FOLDED or not self._head:
            return
        steps, block = range(FOLDED), range(self._room.first)
        head, self._head = self._head, []
        self._head_chunks = [self._folded(steps, block, head, self._head_readings)]

    def _folded(
        self,
        steps: range,
        block: range,
        passed: "Sequence[Whole | _Repeated]",
        readings: Sequence[Reading],
    ) -> Chunk:
        """Return the summary of steps, of which most are deleted.

        Args:
            steps: Indices of the steps.
            block: Those that stay whole and stand for the others.
            passed: The rows of the steps, and before these others that they may repeat.
            readings: Their readings.
        """
        size = len(steps) // TOGETHER
        chunk = Chunk(
            first=steps.start,
            count=len(steps),
            bucket=size,
            block=block,
            series=series_of(readings, steps.start, size),
            cosines=cosines_of(readings),
            whole={},
        )
        own = [one for one in passed if _start(one) >= steps.start]
        kept = self._around | self._captures.steps | set(block) | self._in_use()
        self._passed = {one.step: one for one in passed if isinstance(one, Whole)}
        for one in own:
            for step in self._whole(one, kept):
                chunk.whole[step.step] = step.in_file
        self._pin()
        self._drop(chunk)
        chunk.write(self._writer)
        return chunk

    def _in_use(self) -> Set[int]:
        waiting = (one.steps.sources for one in self._open if isinstance(one, _Repeated))
        return self.in_use() | {step for sources in waiting for step in sources}

    def _pin(self) -> None:
        """Hold the steps that others may still repeat, and let go of the others."""
        used = self._in_use()
        held = self._pinned | self._passed
        self._pinned = {step: one for step, one in held.items() if step in used}
        self._passed = {}

    def _whole(self, one: "Whole | _Repeated", kept: Set[int]) -> Iterator[Whole]:
        """Yield the kept steps of a row, whole; delete the others."""
        if isinstance(one, Whole):
            yield one
            return
        span = range(one.steps.first, one.steps.first + one.steps.count)
        if not kept.isdisjoint(span):
            known = self._known(one.steps.sources).values()
            sources = Sources(
                [step.record for step in known], [event for step in known for event in step.events]
            )
            for record, events in unfolded(one.steps, sources):
                if record.index in kept:
                    starts = self.next_indices()
                    self._writer.add(EVENTS, events)
                    self._writer.add(STEPS, [record])
                    yield whole_step(self._writer, starts, record, tuple(events))
        self._writer.remove(REPEATED_STEPS.name, range(one.row, one.row + 1))

    def _add(self, level: int, chunk: Chunk) -> None:
        if level == len(self._levels):
            self._levels.append(deque())
        self._levels[level].append(chunk)
        self._merge(level)

    def _merge(self, level: int) -> None:
        """Merge the oldest summaries of a level as long as there are too many."""
        chunks = self._levels[level]
        while len(chunks) > max(self._room.chunks, TOGETHER):
            whole = merged(self._writer, [chunks.popleft() for _ in range(TOGETHER)])
            self._drop(whole)
            self._add(level + 1, whole)

    def _ease(self) -> None:
        """Keep less, if the file comes near its limit."""
        self._thin_captures()
        if self._writer.size() >= _FULL * self._room.limit:
            self._shrink(_EASED)
        self._tell()

    def shrink(self) -> None:
        """Keep less, because there was no room for a step; inside a transaction."""
        with self.reserve():
            self._shrink(_SHRUNK)
            self._tell()

    def _shrink(self, share: float) -> None:
        self._keep_less(share)
        is_smallest = self._room.smaller() is None
        self.is_tight = is_smallest and self._writer.size(is_used=True) > _FULL * self._room.limit

    def _keep_less(self, share: float) -> None:
        # What is used: the file itself does not shrink when rows are deleted.
        while self._writer.size(is_used=True) > share * self._room.limit:
            self._is_full = True
            smaller = self._room.smaller()
            if smaller is None:
                return
            self._room = smaller
            self._weigh()
            for level in range(len(self._levels)):
                self._merge(level)
            self._thin_captures()
            while self._next - self._first - FOLDED >= self._room.recent:
                self._fold_next()
            self._fold_head()
            if not self._room.norms:
                for chunk in self._chunks():
                    self._drop(chunk)

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Let small records be written where there is no room for further steps."""
        before = self._writer.largest
        self._writer.allow(self._room.limit - CLOSING)
        try:
            yield
        finally:
            self._writer.allow(before)

    def lack(self, *, captures: int = 0, gradients: int = 0, norms: int = 0) -> None:
        """Take note of what was not written because there was no room for it."""
        self._is_full = True
        self._captures.skip(captures)
        self._lost_gradients += gradients
        self._lost_norms += norms
        with self.reserve():
            self._tell()

    def _tell(self) -> None:
        """Write what the recording lacks, if that has changed."""
        found = LimitRecord(
            limit=self._room.limit,
            captures=self._captures.dropped,
            events=self._lost_events,
            gradients=self._lost_gradients,
            norms=self._lost_norms,
            is_full=self._is_full,
        )
        lacking = found.captures + found.events + found.gradients + found.norms
        if lacking and found != self._told:
            self._writer.put(evidence_tables()[LimitRecord], 0, found)
            self._told = found


def _block(steps: range, count: int, own: Sequence["Whole | _Repeated"]) -> range:
    """Return the steps that stand for some: those in the middle, or around a measured one there."""
    middle = steps.start + len(steps) // 2
    measured = (one.step for one in own if isinstance(one, Whole) and one.has_norms)
    centre = min(measured, key=lambda step: abs(step - middle), default=middle)
    start = min(max(centre - count // 2, steps.start), steps.stop - count)
    return range(start, start + count)


def _start(one: "Whole | _Repeated") -> int:
    return one.step if isinstance(one, Whole) else one.steps.first


def _losses(events: Sequence[EventRecord]) -> int:
    """Return the number of losses that are read in a step like this one."""
    return sum(
        event.kind == "backward" and any(name == "loss" for name, _ in event.numbers)
        for event in events
    )


def _parts(steps: RepeatedSteps, losses: dict[int, int]) -> Iterator[RepeatedSteps]:
    """Yield the steps in rows that end where summaries do."""
    duration = (steps.ended - steps.began) / max(steps.count, 1)
    at = taken = 0
    while at < steps.count:
        end = min(steps.count, at + FOLDED - (steps.first + at) % FOLDED)
        choices = memoryview(steps.choices).cast("H")[at:end]
        own = sum(losses[steps.sources[choice]] for choice in choices)
        yield replace(
            steps,
            first=steps.first + at,
            choices=choices.tobytes(),
            losses=steps.losses[8 * taken : 8 * (taken + own)],
            rates=steps.rates[8 * at : 8 * end],
            began=steps.began + at * duration,
            ended=steps.began + end * duration,
        )
        at, taken = end, taken + own
