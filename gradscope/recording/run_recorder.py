"""Writes the recording of a run during the run, with one transaction per step."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.recording.evidence.batches import BatchIdentity
from gradscope.recording.evidence.failures import CustomFunctionRecord
from gradscope.recording.evidence.ranks import RankEvent
from gradscope.recording.evidence.training import (
    ClipScope,
    ContinuedRun,
    LibraryCall,
    RoundedUpdate,
    RunEnding,
    SourceRecord,
    StatementRecord,
    TrainedOptimizer,
    TrainerArgument,
    WatchCost,
)
from gradscope.recording.meta import Header
from gradscope.recording.records import (
    CapturedStep,
    EventRecord,
    KeptBatch,
    ModuleRecord,
    ParameterRecord,
    Site,
    Skipped,
    StepRecord,
)
from gradscope.recording.repetitions import RepeatedSteps
from gradscope.recording.rows_in_file import BATCH_TENSORS, KEPT_BATCHES
from gradscope.recording.step_norms import NormRow
from gradscope.recording.stored_gradient import StoredGradient
from gradscope.recording.table import Table
from gradscope.recording.tables import (
    CAPTURED_STEPS,
    EVENTS,
    MODULES,
    PARAMETERS,
    REPEATED_STEPS,
    SITES,
    SKIPPED,
    STEPS,
    evidence_tables,
)
from gradscope.recording.thinning.readings import Reading, ReadingsOfAll
from gradscope.recording.thinning.room import Room, room_for_steps
from gradscope.recording.thinning.thinner import Thinner
from gradscope.recording.writer import FullError, RecordingWriter

_FIRST, _LAST, _MOST_INDICES = 200, 100, 1_024
"""Largest number of batches that are described, and of the indices of each."""

_MOST_BYTES = 64_000_000
"""Largest size of all stored batches."""

_SHARE = 0.25
"""Largest share of the recording's limit that they take."""


class Identities(Protocol):
    """Returns the batches of a step."""

    def __call__(self, step: int, /, *, is_read: bool) -> Iterable[BatchIdentity]:
        """Return them, and what their tensors hold if they are to be read."""


@dataclass(frozen=True, slots=True)
class _Kept:
    trouble: float
    size: int
    row: int
    tensors: range
    """Ids of its tensors."""


class EventBatches:
    """The batches of the steps with events.

    Args:
        writer: Of the recording.
        limit: Size in bytes that the recording may have; None for any.
    """

    def __init__(self, writer: RecordingWriter, limit: int | None) -> None:
        self._writer = writer
        self._most = _MOST_BYTES if limit is None else min(_MOST_BYTES, int(_SHARE * limit))
        self._described = 0
        self._kept: list[_Kept] = []
        self.identities: Identities = lambda _, *, is_read: ()
        """Returns the batches that a step used as far as they are known."""
        self.contents: Callable[[int, int], Iterable[KeptBatch]] | None = None
        """Returns the batches of a step up to a size in bytes; None if they are not stored."""

    def note(self, noted: Sequence[Reading]) -> None:
        """Describe the batches of some steps; inside a transaction."""
        for reading in noted:
            for one in self.identities(reading.step, is_read=reading.trouble > 0):
                count = self._described
                # The last ones take the places of older ones in turn, so that no row has to be
                # deleted.
                place = count if count < _FIRST else _FIRST + count % _LAST
                short = replace(one, indices=one.indices[:_MOST_INDICES])
                self._writer.put(evidence_tables()[BatchIdentity], place, short)
                self._described += 1

    def keep(self, noted: Sequence[Reading]) -> None:
        """Store the batches of the steps with trouble, if that is wanted and there is room.

        Those of the largest trouble stay.
        """
        if self.contents is None:
            return
        for reading in noted:
            for batch in self.contents(reading.step, self._most) if reading.trouble else ():
                self._keep(batch, reading.trouble)

    def _keep(self, batch: KeptBatch, trouble: float) -> None:
        size = batch.size
        dropped = self._less_important(size, trouble)
        if dropped is None:
            return
        row, start = (
            self._writer.next_index(name) for name in (KEPT_BATCHES.name, BATCH_TENSORS.name)
        )
        try:
            # Apart from the step's own, so that a batch for which there is no room does not undo
            # the step.
            with self._writer.transaction():
                for one in dropped:
                    self._writer.remove(KEPT_BATCHES.name, range(one.row, one.row + 1))
                    self._writer.remove(BATCH_TENSORS.name, one.tensors)
                self._writer.add_kept_batches([batch])
        except FullError as error:
            if not error.is_at_limit:
                raise
            return
        self._kept = [one for one in self._kept if one not in dropped]
        self._kept.append(_Kept(trouble, size, row, range(start, start + len(batch.tensors))))

    def _less_important(self, size: int, trouble: float) -> list[_Kept] | None:
        """Return what to drop for a batch of a size; None if what is there is worth more."""
        free = self._most - sum(one.size for one in self._kept) - size
        dropped: list[_Kept] = []
        # The sort is stable: of equal trouble, the oldest goes first.
        for one in sorted(self._kept, key=lambda one: one.trouble):
            if free >= 0 or one.trouble >= trouble:
                break
            dropped.append(one)
            free += one.size
        return dropped if free >= 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStep:
    """The additions of one step to the recording; records have their final indices."""

    step: StepRecord | None = None
    events: tuple[EventRecord, ...] = ()
    norms: Sequence[NormRow] = ()
    """Norms of parameters: there are many in every step."""
    parameters: tuple[ParameterRecord, ...] = ()
    modules: tuple[ModuleRecord, ...] = ()
    sites: tuple[Site, ...] = ()
    sources: tuple[SourceRecord, ...] = ()
    statements: tuple[StatementRecord, ...] = ()
    optimizers: tuple[tuple[int, TrainedOptimizer], ...] = ()
    """New and changed optimizers with their indices."""
    library_calls: tuple[LibraryCall, ...] = ()
    trainer_arguments: tuple[TrainerArgument, ...] = ()
    scopes: tuple[ClipScope, ...] = ()
    rounded: tuple[RoundedUpdate, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    functions: tuple[CustomFunctionRecord, ...] = ()
    """The script's custom functions, checked at its end."""
    captured_steps: tuple[CapturedStep, ...] = ()
    """Captured steps of the backward passes before this step."""
    ranks: tuple[object, ...] = ()
    """Evidence of a distributed job."""
    rank_events: tuple[tuple[int, RankEvent], ...] = ()
    """New and changed events of a distributed job with their indices."""
    stored_gradients: tuple[StoredGradient, ...] = ()


class RunRecorder:
    """The file of a running process.

    It is complete after every step, even if the process is killed.

    Args:
        path: File of the recording, created anew.
        header: The header; `describe` can complete it later.
        room: How much is kept; None for everything.

    Raises:
        GradscopeError: The file exists, or cannot be written.
    """

    def __init__(self, path: Path, header: Header, room: Room | None = None) -> None:
        # Written at the start, because a process that is killed writes nothing at its end.
        self._header = dataclasses.replace(header, finished=False)
        limit = None if room is None else room.limit
        self._writer = RecordingWriter(path, self._header, limit=limit)
        self.thinner = None if room is None else Thinner(self._writer, room)
        self._is_thinning = False
        """Whether a step was added and others are being summarised: it cannot be added again."""
        self._lost: set[int] = set()
        """Indices of captured steps that were not written: others may refer to them."""
        self.batches = EventBatches(self._writer, limit)
        self._readings = ReadingsOfAll()
        """Reads the steps if no thinner does."""
        self._limit = limit
        # Less than the limit, because summarising old steps writes before it deletes.
        if limit is not None:
            self._writer.allow(room_for_steps(limit))

    def add(self, one: RunStep) -> None:
        """Add a step.

        Raises:
            GradscopeError: The file cannot be written any more, for example on a full disk. It
                contains the steps before.
        """
        thinner = self.thinner
        if thinner is not None and any(step.same_as in self._lost for step in one.captured_steps):
            one = self._without_captures(thinner, one)
        # With norms, each step would be written and undone before it is written without them.
        if thinner is not None and thinner.is_tight and one.norms:
            self._write_events(thinner, one)
            return
        try:
            self._write_step(one)
        except FullError as error:
            if thinner is None or self._is_thinning or not error.is_at_limit:
                raise
            self._write_within(thinner, one)

    def _write_step(self, one: RunStep) -> None:
        with self._writer.transaction():
            starts = {} if self.thinner is None else self.thinner.next_indices()
            self._add(one)
            if self.thinner is not None and one.step is not None:
                self._is_thinning = True
                self.thinner.take(starts, one.step, one.events, one.captured_steps)
                self._is_thinning = False
            noted = self._noted(one)
            self.batches.note(noted)
        # After the step's transaction, because each batch has one of its own.
        self.batches.keep(noted)

    def _noted(self, one: RunStep | RepeatedSteps) -> list[Reading]:
        """Return the readings of the steps with events that were written last."""
        if self.thinner is not None:
            noted, self.thinner.noted = self.thinner.noted, []
            return noted
        if isinstance(one, RepeatedSteps):
            return self._readings.of_repeated(one)
        return [] if one.step is None else self._readings.of_step(one.step.index, one.events)

    def _write_within(self, thinner: Thinner, one: RunStep) -> None:
        """Add a step for which there was no room, if need be without what takes most of it."""
        with self._writer.transaction():
            thinner.shrink()
        for less in (lambda _, one: one, self._without_bulk):
            one = less(thinner, one)
            try:
                self._write_step(one)
            except FullError:
                if self._is_thinning:
                    raise
            else:
                return
        self._write_events(thinner, one)

    def _write_events(self, thinner: Thinner, one: RunStep) -> None:
        """Add a step without norms."""
        with thinner.reserve():
            self._write_step(self._without_norms(thinner, self._without_bulk(thinner, one)))

    def _without_bulk(self, thinner: Thinner, one: RunStep) -> RunStep:
        """Return a step without what takes most, which is counted as dropped."""
        if one.stored_gradients:
            with self._writer.transaction():
                thinner.lack(gradients=len(one.stored_gradients))
        if one.captured_steps:
            one = self._without_captures(thinner, one)
        return dataclasses.replace(one, stored_gradients=())

    def _without_norms(self, thinner: Thinner, one: RunStep) -> RunStep:
        with self._writer.transaction():
            thinner.lack(norms=1)
        return dataclasses.replace(one, norms=())

    def _without_captures(self, thinner: Thinner, one: RunStep) -> RunStep:
        """Return a step without its captured steps, which are counted as dropped."""
        start, count = self._writer.next_index(CAPTURED_STEPS.name), len(one.captured_steps)
        self._lost.update(range(start, start + count))
        with self._writer.transaction():
            self._writer.skip_captured_steps(count)
            thinner.lack(captures=count)
        return dataclasses.replace(one, captured_steps=())

    def _add(self, one: RunStep) -> None:
        evidence = evidence_tables()
        # Most of it is empty in most steps.
        tables: tuple[tuple[Table[Any], Sequence[object]], ...] = (
            (SITES, one.sites),
            (evidence[SourceRecord], one.sources),
            (evidence[StatementRecord], one.statements),
            (MODULES, one.modules),
            (PARAMETERS, one.parameters),
            (evidence[LibraryCall], one.library_calls),
            (evidence[TrainerArgument], one.trainer_arguments),
            (evidence[ClipScope], one.scopes),
            (evidence[RoundedUpdate], one.rounded),
            (SKIPPED, one.skipped),
            (evidence[CustomFunctionRecord], one.functions),
            (EVENTS, one.events),
        )
        for table, records in tables:
            if records:
                self._writer.add(table, records)
        for position, optimizer in one.optimizers:
            # Not added: an optimizer's record is written again when it gets groups or replaces
            # another.
            self._writer.put(evidence[TrainedOptimizer], position, optimizer)
        for record in one.ranks:
            self._writer.add(evidence[type(record)], [record])
        for position, event in one.rank_events:
            self._writer.put(evidence[RankEvent], position, event)
        if one.step is not None:
            self._writer.add_norms(one.step.index, one.norms)
            self._writer.add(STEPS, [one.step])
        for captured in one.captured_steps:
            self._writer.add_captured_step(captured)
        self._writer.add_stored_gradients(one.stored_gradients)

    def repeat(self, steps: RepeatedSteps) -> None:
        """Add steps that repeat others.

        Raises:
            GradscopeError: The file cannot be written any more.
        """
        with self._writer.transaction():
            if self.thinner is None:
                self._writer.add(REPEATED_STEPS, [steps])
            else:
                self.thinner.repeat(steps)
            noted = self._noted(steps)
            self.batches.note(noted)
        self.batches.keep(noted)

    def continue_at(self, step: int) -> None:
        """Record that the training was resumed, behind a number of optimizer steps."""
        with self._writer.transaction():
            self._writer.add(evidence_tables()[ContinuedRun], [ContinuedRun(step=step)])

    def describe(self, *, model: str, batch: str, optimizer: str | None) -> None:
        """Add the description of what is trained, once it is known."""
        target = dataclasses.replace(
            self._header.target, model=model, batch=batch, optimizer=optimizer
        )
        self._write(dataclasses.replace(self._header, target=target))

    def close(self, ending: RunEnding | None = None, cost: WatchCost | None = None) -> None:
        """Finish the file with the end of the run and the cost of recording, if known."""
        self._end(dataclasses.replace(self._header, finished=True), ending, cost)

    def abandon(self, ending: RunEnding | None = None, cost: WatchCost | None = None) -> None:
        """Close the file of an unfinished run with the reason, if known."""
        self._end(self._header, ending, cost)

    def _end(self, header: Header, ending: RunEnding | None, cost: WatchCost | None) -> None:
        if self._limit is not None:
            # The room that was left for summaries is free for the end.
            self._writer.allow(self._limit)
        try:
            self._write(header, *(one for one in (ending, cost) if one is not None))
        except GradscopeError:
            pass  # the disk is full: the recording stays that of an unfinished run
        finally:
            self._writer.close()

    def _write(self, header: Header, *evidence: RunEnding | WatchCost) -> None:
        with self._writer.transaction():
            self._writer.describe(header)
            for record in evidence:
                self._writer.add(evidence_tables()[type(record)], [record])
        self._header = header
