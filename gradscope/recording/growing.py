"""Reads what was added to the recording of a run, while the run continues."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from operator import attrgetter
from pathlib import Path

from gradscope.frozen import dataclass
from gradscope.recording.evidence.training import TrainedOptimizer
from gradscope.recording.meta import Header, read_header
from gradscope.recording.records import EventRecord, ModuleRecord, ParameterRecord, StepRecord
from gradscope.recording.repetitions import RepeatedSteps, with_repeated
from gradscope.recording.step_norms import NORMS, last_norms
from gradscope.recording.table import Record, Row, Table
from gradscope.recording.tables import (
    EVENTS,
    MODULES,
    PARAMETERS,
    REPEATED_STEPS,
    STEPS,
    evidence_tables,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Additions to a recording since the last read."""

    header: Header
    steps: tuple[StepRecord, ...]
    events: tuple[EventRecord, ...]
    """Events of the requested kinds, of these steps only."""
    modules: tuple[ModuleRecord, ...]
    parameters: tuple[ParameterRecord, ...]
    optimizers: tuple[TrainedOptimizer, ...]
    """All optimizers: a record may change."""
    norms: dict[int, float | None]
    """By parameter, its last gradient norm; None if it had no gradient."""
    norm_steps: dict[int, int]
    """By parameter, the step of this norm."""


class GrowingRecording:
    """The recording of a running process. Its file is open only while it is read.

    Args:
        path: File of the recording.
        kinds: Kinds of events to read.
    """

    def __init__(self, path: Path, kinds: tuple[str, ...]) -> None:
        self._path, self._kinds = path, kinds
        self._read: dict[str, int] = {}
        """By table: number of rows read."""
        self._seen = -1
        """Last step read: some that are kept whole are written again behind later ones."""

    def read(self) -> Growth:
        """Return what is new.

        Raises:
            sqlite3.Error: The file cannot be read.
        """
        # A connection that stays open would keep the training from ending its log at its end.
        uri = f"{self._path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as base:
            base.execute("BEGIN")  # a consistent view of all tables
            steps, events = self._happened(base)
            modules, parameters = self._new(base, MODULES), self._new(base, PARAMETERS)
            norms, norm_steps = self._norms(base)
            return Growth(
                # Again each time: the model and the optimizer are described only once they are
                # known.
                header=read_header(dict(base.execute("SELECT name, value FROM meta"))),
                steps=steps,
                events=events,
                modules=modules,
                parameters=parameters,
                optimizers=evidence_tables()[TrainedOptimizer].records(base),
                norms=norms,
                norm_steps=norm_steps,
            )

    def _happened(
        self, base: sqlite3.Connection
    ) -> tuple[tuple[StepRecord, ...], tuple[EventRecord, ...]]:
        """Return new steps and events, those of repeated steps included."""
        steps, repeated = self._new(base, STEPS), self._new(base, REPEATED_STEPS)
        # Of steps that others repeat, the backward passes tell whose losses come next.
        events = self._new(base, EVENTS, () if repeated else self._kinds)
        if repeated:
            steps, events = self._with_repeated(base, steps, events, repeated)
        # A step that is written again has an id behind those read, and an old index.
        since = self._seen
        self._seen = max((step.index for step in steps), default=since)
        return (
            tuple(sorted((one for one in steps if one.index > since), key=attrgetter("index"))),
            tuple(one for one in events if one.step > since),
        )

    def _with_repeated(
        self,
        base: sqlite3.Connection,
        steps: tuple[StepRecord, ...],
        events: tuple[EventRecord, ...],
        repeated: Sequence[RepeatedSteps],
    ) -> tuple[tuple[StepRecord, ...], tuple[EventRecord, ...]]:
        new = {step.index for step in steps}
        # Steps that were read before: their events of other kinds are needed again, and not
        # returned.
        sources = {index for one in repeated for index in one.sources} - new
        all_steps, all_events = with_repeated(
            (*_of_steps(base, STEPS, sources), *steps),
            (*_of_steps(base, EVENTS, sources), *events),
            repeated,
        )
        return (
            tuple(step for step in all_steps if step.index not in sources),
            tuple(
                event
                for event in all_events
                if event.step not in sources and event.kind in self._kinds
            ),
        )

    def _new(
        self, base: sqlite3.Connection, table: Table[Record], kinds: tuple[str, ...] = ()
    ) -> tuple[Record, ...]:
        columns = ", ".join(table.names)
        of_kinds = f" AND kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
        rows: list[Row] = base.execute(
            f"SELECT id, {columns} FROM {table.name} WHERE id >= ?{of_kinds} ORDER BY id",
            (self._advance(base, table.name), *kinds),
        ).fetchall()
        return tuple(table.read_many(rows)) if rows else ()

    def _norms(self, base: sqlite3.Connection) -> tuple[dict[int, float | None], dict[int, int]]:
        # Read behind the parameters: their number tells when the norms of all are found.
        found = last_norms(base, self._advance(base, NORMS), self._read[PARAMETERS.name])
        last = {parameter: (norm, step) for step, parameter, norm in found}
        return (
            {parameter: norm for parameter, (norm, _) in last.items()},
            {parameter: step for parameter, (_, step) in last.items()},
        )

    def _advance(self, base: sqlite3.Connection, table: str) -> int:
        """Return the first unread row, and mark all existing ones as read."""
        start = self._read.get(table, 0)
        (last,) = base.execute(f"SELECT max(id) FROM {table}").fetchone()
        self._read[table] = start if last is None else last + 1
        return start


def _of_steps(
    base: sqlite3.Connection, table: Table[Record], steps: set[int]
) -> tuple[Record, ...]:
    """Return the records of some steps in a table."""
    rows = base.execute(
        f"""SELECT id, {", ".join(table.names)} FROM {table.name}
            WHERE step IN ({", ".join("?" * len(steps))}) ORDER BY id""",
        tuple(steps),
    ).fetchall()
    return tuple(table.read_many(rows)) if rows else ()
