"""Summaries of consecutive steps in the file, and the steps among them that are still whole."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from math import floor

from gradscope.frozen import dataclass
from gradscope.recording.evidence.summaries import (
    CosineSummary,
    SeriesKind,
    SeriesSummary,
    StepSummary,
)
from gradscope.recording.evidence.training import RoundedUpdate
from gradscope.recording.records import EventRecord, StepRecord
from gradscope.recording.step_norms import NORMS
from gradscope.recording.tables import EVENTS, STEPS, evidence_tables
from gradscope.recording.thinning.buckets import Bucket, bucket_of, joined, packed, written
from gradscope.recording.thinning.readings import Reading
from gradscope.recording.writer import RecordingWriter

TOGETHER = 10
"""Number of buckets of a summary, and of summaries that become one."""

SeriesKey = tuple[SeriesKind, int | None]


@dataclass(frozen=True, slots=True)
class StepRows:
    """The rows of a step that is whole in the file."""

    step: int
    rows: Mapping[str, range]
    """By table: ids of its rows."""

    @property
    def has_norms(self) -> bool:
        """Whether norms of parameters were measured."""
        return NORMS in self.rows

    def remove(self, writer: RecordingWriter) -> None:
        """Delete it; inside a transaction."""
        for table, rows in self.rows.items():
            writer.remove(table, rows)


@dataclass(frozen=True, slots=True)
class Whole(StepRows):
    """A step that is whole in the file, and in memory as long as others may repeat it."""

    record: StepRecord
    events: tuple[EventRecord, ...]

    @property
    def in_file(self) -> StepRows:
        """Its rows alone: events take ten times their memory."""
        return StepRows(self.step, self.rows)


@dataclass(slots=True)
class Chunk:
    """A summary."""

    first: int
    count: int
    bucket: int
    block: range
    """Steps that stay whole and stand for the others."""
    series: dict[SeriesKey, list[Bucket]]
    cosines: dict[int, Counter[int]]
    """By line of a clip: number of steps by hundredth of the cosine."""
    whole: dict[int, StepRows]
    rows: dict[str, range] = field(default_factory=dict)
    """By table: ids of its own rows."""

    @property
    def steps(self) -> range:
        """Indices of its steps."""
        return range(self.first, self.first + self.count)

    def drop(self, writer: RecordingWriter, kept: Iterable[int]) -> None:
        """Delete the whole steps that are neither of its block nor kept otherwise."""
        for step in set(self.whole) - set(self.block) - set(kept):
            self.whole.pop(step).remove(writer)

    def drop_norms(self, writer: RecordingWriter, most: int) -> None:
        """Delete the norms of all whole steps but some in the middle."""
        measured = [one for one in self.whole.values() if one.has_norms]
        start = max(0, len(measured) - most) // 2
        for one in (*measured[:start], *measured[start + most :]):
            writer.remove(NORMS, one.rows[NORMS])
            rows = {table: span for table, span in one.rows.items() if table != NORMS}
            self.whole[one.step] = replace(one, rows=rows)

    def write(self, writer: RecordingWriter) -> None:
        """Write the summary."""
        step = StepSummary(
            first=self.first,
            count=self.count,
            bucket=self.bucket,
            block_first=self.block.start,
            block=len(self.block),
        )
        series = [
            SeriesSummary(first=self.first, kind=kind, optimizer=optimizer, **packed(buckets))
            for (kind, optimizer), buckets in self.series.items()
        ]
        cosines = [
            CosineSummary(
                first=self.first,
                site=site,
                lowest=min(counts),
                counts=written(counts[one] for one in range(min(counts), max(counts) + 1)),
            )
            for site, counts in self.cosines.items()
        ]
        for records in ([step], series, cosines):
            if records:
                table = evidence_tables()[type(records[0])]
                start = writer.next_index(table.name)
                writer.add(table, records)
                self.rows[table.name] = range(start, writer.next_index(table.name))


def whole_step(
    writer: RecordingWriter,
    starts: Mapping[str, int],
    record: StepRecord,
    events: tuple[EventRecord, ...],
) -> Whole:
    """Return a step that was just written, given the tables' lengths before."""
    rows = {
        table: range(start, writer.next_index(table))
        for table, start in starts.items()
        if writer.next_index(table) > start
    }
    return Whole(record.index, rows, record, events)


def tables_of_steps() -> tuple[str, ...]:
    """Return the tables with rows of single steps."""
    return STEPS.name, EVENTS.name, NORMS, evidence_tables()[RoundedUpdate].name


def series_of(readings: Sequence[Reading], first: int, size: int) -> dict[SeriesKey, list[Bucket]]:
    """Return the series of consecutive steps in buckets of a size."""
    found: dict[SeriesKey, list[tuple[list[float], list[int]]]] = {}
    for reading in readings:
        for kind, value in reading.numbers.items():
            columns = found.setdefault(
                (kind, reading.optimizer), [([], []) for _ in range(TOGETHER)]
            )
            values, steps = columns[min((reading.step - first) // size, TOGETHER - 1)]
            values.append(value)
            steps.append(reading.step)
    return {key: [bucket_of(*column) for column in columns] for key, columns in found.items()}


def cosines_of(readings: Sequence[Reading]) -> dict[int, Counter[int]]:
    """Return by line of a clip the number of steps by hundredth of the cosine that it leaves."""
    found: dict[int, Counter[int]] = {}
    for reading in readings:
        for site, cosine in reading.cosines.items():
            # Not `int`, which would round negative ones up.
            found.setdefault(site, Counter())[floor(100 * cosine)] += 1
    return found


def merged(writer: RecordingWriter, chunks: Sequence[Chunk]) -> Chunk:
    """Return one summary in place of consecutive ones, which are deleted; one block stays."""
    keys = dict.fromkeys(key for chunk in chunks for key in chunk.series)
    whole = Chunk(
        first=chunks[0].first,
        count=sum(chunk.count for chunk in chunks),
        bucket=chunks[0].bucket * TOGETHER,
        block=_chosen(chunks).block,
        series={key: [joined(chunk.series.get(key, ())) for chunk in chunks] for key in keys},
        cosines={
            site: sum((chunk.cosines.get(site, Counter()) for chunk in chunks), Counter())
            for site in dict.fromkeys(site for chunk in chunks for site in chunk.cosines)
        },
        whole={step: one for chunk in chunks for step, one in chunk.whole.items()},
    )
    for chunk in chunks:
        for table, rows in chunk.rows.items():
            writer.remove(table, rows)
    whole.write(writer)
    return whole


def _chosen(chunks: Sequence[Chunk]) -> Chunk:
    """Return the summary in the middle, or the nearest to it whose block has norms."""
    middle = len(chunks) // 2
    order = sorted(range(len(chunks)), key=lambda position: abs(position - middle))
    measured = (
        chunks[position]
        for position in order
        if any(
            step in chunks[position].block and one.has_norms
            for step, one in chunks[position].whole.items()
        )
    )
    return next(measured, chunks[middle])
