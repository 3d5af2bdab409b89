"""The file of a recording: written step by step, saved whole, and loaded."""

import gc
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self

from gradscope.errors import GradscopeError
from gradscope.recording import step_norms
from gradscope.recording.continuation.joining import continued, start_of
from gradscope.recording.meta import Header, header_of, read_header, write_header
from gradscope.recording.norm_table import norms_of
from gradscope.recording.opening import APPLICATION_ID, FORMAT, opened_to_read
from gradscope.recording.records import CapturedStep, Recording
from gradscope.recording.repetitions import own_part
from gradscope.recording.step_norms import (
    NORMS,
    NormRow,
    NormSets,
    rows_by_step,
)
from gradscope.recording.stored_gradient import StoredGradient
from gradscope.recording.stored_gradient_tables import (
    PART_DEFINITION,
    PART_INSERTION,
    PARTS,
    STORED_GRADIENTS,
    StoredRow,
    read_stored_gradients,
)
from gradscope.recording.table import Record, Row, Table
from gradscope.recording.tables import (
    CAPTURED_STEPS,
    CapturedStepRow,
    all_tables,
    captured_step_definitions,
    captured_step_tables_by_name,
    contents,
    read_captured_steps,
    read_parameter_stats,
    recording_of,
)
from gradscope.recording.views import VIEWS

_DEFINITIONS = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID",
    *(table.definition for table in all_tables()),
    *step_norms.DEFINITIONS,
    *VIEWS,
)


class RecordingWriter:
    """A recording's file, open for adding.

    ```
    with RecordingWriter("run.gradscope", header) as writer:
        with writer.transaction():
            writer.add(STEPS, [step])
            writer.add(PARAMETER_STATS, stats)
    ```

    Args:
        path: File of the recording, created anew.
        header: The header.
        force: Overwrite an existing file.
        limit: Size in bytes that the file will have at most, if it is known.

    Raises:
        GradscopeError: The file exists and `force` is not set, or it cannot be written.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        header: Header,
        *,
        force: bool = False,
        limit: int | None = None,
    ) -> None:
        self.path = Path(path)
        check_free(self.path, force=force)
        # By table: number of rows, which is the next record's index.
        self._places: dict[str, int] = {}
        try:
            remove_recording(continuation_of(self.path))
            remove_recording(self.path)
            self._connection = _create(self.path, header, limit)
            self.norm_sets = NormSets(self._connection)
        except (OSError, sqlite3.Error) as error:
            with suppress(OSError):
                remove_recording(self.path)
            raise unwritable(self.path, str(error)) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything added inside together: the file gets all of it, or nothing.

        Raises:
            GradscopeError: The file cannot be written any more, for example on a full disk.
        """
        locations = dict(self._places)
        self._connection.execute("BEGIN")
        try:
            yield
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise unwritable(self.path, str(error)) from error
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
                self._places = locations
                self.norm_sets.forget()

    def add(self, table: Table[Record], records: Iterable[Record]) -> None:
        """Add records after the existing ones of the table; inside a transaction."""
        start = self._places.get(table.name, 0)
        rows = ((location, *table.write(record)) for location, record in enumerate(records, start))
        cursor = self._connection.executemany(table.insertion, rows)
        self._places[table.name] = start + max(cursor.rowcount, 0)

    def add_norms(self, step: int, rows: Sequence[NormRow]) -> None:
        """Add what a step of a run has measured of its parameters; inside a transaction."""
        if rows:
            place = self.place(NORMS)
            self.norm_sets.add(place, step, rows)
            self._places[NORMS] = place + 1

    def put(self, table: Table[Record], place: int, record: Record) -> None:
        """Write the record at an index, new or changed; inside a transaction."""
        self._connection.execute(table.replacement, (place, *table.write(record)))
        self._places[table.name] = max(place + 1, self._places.get(table.name, 0))

    def add_captured_step(self, captured: CapturedStep) -> None:
        """Add a captured step, without what it repeats of another; inside a transaction."""
        if CAPTURED_STEPS.name not in self._places:
            for definition in captured_step_definitions():
                self._connection.execute(definition)
        location = self._places.get(CAPTURED_STEPS.name, 0)
        header = header_of(captured.recording)
        row = CapturedStepRow(
            step=captured.step, order=captured.order, header=header, same_as=captured.same_as
        )
        self.add(CAPTURED_STEPS, [row])
        tables = captured_step_tables_by_name()
        for table, records in contents(own_part(captured)):
            if not records:
                continue
            twin = tables[table.name]
            rows = ((location, index, *twin.write(one)) for index, one in enumerate(records))
            self._connection.executemany(twin.insertion, rows)

    def add_stored_gradients(self, gradients: Iterable[StoredGradient]) -> None:
        """Add gradients with their numbers; inside a transaction."""
        for gradient in gradients:
            if STORED_GRADIENTS.name not in self._places:
                self._connection.execute(STORED_GRADIENTS.definition)
                self._connection.execute(PART_DEFINITION)
            start = self._places.get(PARTS, 0)
            rows = (
                (location, part.values, part.rows)
                for location, part in enumerate(gradient.parts, start)
            )
            count = max(self._connection.executemany(PART_INSERTION, rows).rowcount, 0)
            self._places[PARTS] = start + count
            self.add(STORED_GRADIENTS, [StoredRow(gradient=gradient, start=start, count=count)])

    def place(self, table: str) -> int:
        """Return the index of the next record of a table."""
        return self._places.get(table, 0)

    def remove(self, table: str, rows: range) -> None:
        """Delete rows; inside a transaction."""
        self._connection.execute(
            f"DELETE FROM {table} WHERE id >= ? AND id < ?", (rows.start, rows.stop)
        )

    def remove_captured_step(self, index: int) -> None:
        """Delete a captured step that no other repeats; inside a transaction."""
        self._connection.execute(f"DELETE FROM {CAPTURED_STEPS.name} WHERE id = ?", (index,))
        for table in captured_step_tables_by_name().values():
            self._connection.execute(
                f"DELETE FROM {table.name} WHERE {CAPTURED_STEPS.name} = ?", (index,)
            )

    def cells(self, table: str, columns: Sequence[str], rows: range) -> list[Row]:
        """Return some columns of rows, in order."""
        names = ", ".join(f'"{name}"' for name in columns)
        query = f"SELECT {names} FROM {table} WHERE id >= ? AND id < ? ORDER BY id"
        return self._connection.execute(query, (rows.start, rows.stop)).fetchall()

    def size(self, *, is_used: bool = False) -> int:
        """Return the size of the file in bytes, or of what is used of it."""

        def pragma(name: str) -> int:
            (value,) = self._connection.execute(f"PRAGMA {name}").fetchone()
            return int(value)

        free = pragma("freelist_count") if is_used else 0
        return (pragma("page_count") - free) * pragma("page_size")

    def describe(self, header: Header) -> None:
        """Write the header again; inside a transaction."""
        rows = write_header(header).items()
        self._connection.executemany("REPLACE INTO meta VALUES (?, ?)", rows)

    def close(self) -> None:
        """Finish the file: no other file is left, unless another process is reading it."""
        with closing(self._connection), suppress(sqlite3.OperationalError):
            # Without WAL mode, the file can be read on read-only media. The switch needs exclusive
            # access; if another process reads the file, it stays as it is with its log, which is
            # fine.
            self._connection.execute("PRAGMA busy_timeout = 0")
            self._connection.execute("PRAGMA journal_mode = DELETE")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def check_free(path: Path, *, force: bool) -> None:
    """Check that a recording may be written to a path.

    Raises:
        GradscopeError: The path exists, and `force` is not set or it is no file.
    """
    if path.is_dir():
        raise GradscopeError(f"cannot write `{path}`: it is a directory")
    if path.exists() and not path.is_file():
        raise GradscopeError(f"cannot write `{path}`: it is a device, not a file")
    if path.exists() and not force:
        raise GradscopeError(
            f"`{path}` exists",
            help="choose another name, or overwrite it: --force, in Python force=True",
        )


def remove_logs(path: Path) -> None:
    """Remove the logs that a killed process left: SQLite would use them for the next file."""
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def remove_recording(path: Path) -> None:
    """Remove a recording with its logs, if it exists."""
    path.unlink(missing_ok=True)
    remove_logs(path)


def continuation_of(path: Path) -> Path:
    """Return the file beside a recording that is written after the training is resumed."""
    return path.with_name(f"{path.name}-next")


def absorb_continuation(path: Path) -> None:
    """Join a recording with the part in the file beside it, which is removed.

    Raises:
        GradscopeError: One cannot be read, or the whole recording cannot be written.
    """
    if continuation_of(path).exists():
        save_recording(load_recording(path), path, force=True)


def unwritable(path: Path, reason: str) -> GradscopeError:
    """Return the error of a recording that cannot be written."""
    return GradscopeError(f"cannot write `{path}`: {reason}")


def _create(path: Path, header: Header, limit: int | None) -> sqlite3.Connection:
    # A run is written by any thread that makes a step, one at a time.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        _lay_out(connection, header)
        if limit is not None:  # the log is besides the file
            pages = min(max(_LEAST_LOG, limit // (20 * 4_096)), 1_000)
            connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")
            connection.execute(f"PRAGMA journal_size_limit = {limit // 10}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _lay_out(connection: sqlite3.Connection, header: Header) -> None:
    connection.execute("BEGIN")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    for definition in _DEFINITIONS:
        connection.execute(definition)
    texts = write_header(header)
    connection.executemany("INSERT INTO meta VALUES (?, ?)", texts.items())
    connection.execute("COMMIT")
    # The tables exist before the log: whoever opens the file from now on recognizes it by them.
    connection.execute("PRAGMA journal_mode = WAL")
    # Survives a killed process; after a power cut, the last steps may be missing.
    connection.execute("PRAGMA synchronous = NORMAL")


_LEAST_LOG = 200
"""Pages of the log after which it is written back at the soonest: that waits for the disk."""


def save_recording(recording: Recording, path: str | PathLike[str], *, force: bool = False) -> None:
    """Write a whole recording to a file; an existing file stays whole until it is replaced.

    Raises:
        GradscopeError: The file exists and `force` is not set, or it cannot be written.
    """
    target = Path(path)
    check_free(target, force=force)
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        header = header_of(recording)
        with RecordingWriter(partial, header, force=True) as writer, writer.transaction():
            for table, records in contents(recording):
                writer.add(table, records)
            if any(step.kind == "run" for step in recording.steps):
                for step, rows in rows_by_step(norms_of(recording)):
                    writer.add_norms(step, rows)
            for captured in recording.captured_steps:
                writer.add_captured_step(captured)
            writer.add_stored_gradients(recording.stored_gradients)
        remove_logs(target)
        partial.replace(target)
        # If the process is killed here, joining again gives the same.
        remove_recording(continuation_of(target))
    except OSError as error:
        raise unwritable(target, str(error)) from error
    finally:
        partial.unlink(missing_ok=True)


def load_recording(path: str | PathLike[str], *, is_outline: bool = False) -> Recording:
    """Read a recording; of a running process, the finished steps; of a resumed training, all parts.

    Args:
        path: Its file.
        is_outline: Whether to leave out norms by step, captured steps and stored gradients, which
            are nearly all of a long run.

    Raises:
        GradscopeError: The file is missing, not a recording, damaged, or of a newer version.
    """
    file = Path(path)
    recording = _load(file, is_outline=is_outline)
    following = continuation_of(file)
    if not following.exists() or not following.stat().st_size:
        return recording
    after = _load(following, is_outline=is_outline)
    start = start_of(after)
    # Without its first step, the training was killed before it was resumed.
    return recording if start is None else continued(recording, after, start)


def _load(file: Path, *, is_outline: bool) -> Recording:
    with opened_to_read(file) as base, _no_collection():
        return _outline(base) if is_outline else _read(base, file)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Pause the garbage collector, which would traverse a million new records repeatedly."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read(base: sqlite3.Connection, file: Path) -> Recording:
    header = read_header(dict(base.execute("SELECT name, value FROM meta")))
    recording = recording_of(
        header,
        lambda table: table.records(base),
        stats=read_parameter_stats(base),
        captured_steps=read_captured_steps(base),
    )
    return replace(recording, stored_gradients=read_stored_gradients(base, file.absolute()))


def _outline(base: sqlite3.Connection) -> Recording:
    header = read_header(dict(base.execute("SELECT name, value FROM meta")))
    recording = recording_of(header, lambda table: table.records(base), stats=())
    return replace(recording, is_outline=True)
