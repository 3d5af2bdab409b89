"""The file of a recording, written step by step."""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from os import PathLike
from pathlib import Path
from shutil import disk_usage
from types import TracebackType
from typing import Any, Self

from gradscope.errors import GradscopeError
from gradscope.recording import step_norms
from gradscope.recording.meta import Header, header_of, write_header
from gradscope.recording.paths import (
    APPLICATION_ID,
    FORMAT,
    check_free,
    claim,
    continuation_of,
    file_at,
    remove_logs,
    remove_recording,
    unwritable,
)
from gradscope.recording.records import CapturedStep, KeptBatch
from gradscope.recording.repetitions import own_part
from gradscope.recording.rows_in_file import (
    BATCH_TENSORS,
    KEPT_BATCHES,
    PARTS,
    STORED_GRADIENTS,
    BatchRow,
    LargeTable,
    StoredRow,
)
from gradscope.recording.step_norms import (
    NORMS,
    NormRow,
    NormSets,
)
from gradscope.recording.stored_gradient import StoredGradient
from gradscope.recording.table import Record, Row, Table
from gradscope.recording.tables import (
    CAPTURED_STEPS,
    VIEWS,
    CapturedStepRow,
    captured_step_definitions,
    captured_step_tables_by_name,
    contents,
    first_tables,
)

_DEFINITIONS = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID",
    *(table.definition for table in first_tables()),
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
        self._next_indices: dict[str, int] = {}
        self._transactions = 0
        self.largest = 0
        """Size in bytes that the file will have at most; 0 without a limit."""
        try:
            remove_recording(continuation_of(self.path))
            if force:
                self.path.unlink(missing_ok=True)
            is_new = claim(self.path)
            self._file = file_at(self.path)
            self._connection = _create(self.path, header, limit, is_new=is_new)
            (self._page,) = self._connection.execute("PRAGMA page_size").fetchone()
            self.norm_sets = NormSets(self._connection)
        except (OSError, sqlite3.Error) as error:
            raise unwritable(self.path, str(error)) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything added inside together: the file gets all of it, or nothing.

        Raises:
            FullError: There is no room for it.
            GradscopeError: The file cannot be written any more.
        """
        locations, sets = dict(self._next_indices), self.norm_sets.count
        self._transactions += 1
        if self._transactions % _CHECKED == 0 and self._is_lost:
            raise unwritable(self.path, "it was removed or replaced")
        self._connection.execute("BEGIN")
        is_done = False
        try:
            yield
            self._connection.execute("COMMIT")
            is_done = True
        except sqlite3.Error as error:
            raise self._error(error) from error
        finally:
            # A full disk ends the transaction by itself, and a second ROLLBACK would be an error.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if not is_done:
                self._next_indices = locations
                self.norm_sets.forget(sets)

    def _error(self, error: sqlite3.Error) -> GradscopeError:
        if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
            return unwritable(self.path, str(error))
        is_at_limit = self.largest > 0 and disk_usage(self.path.parent).free > _SPARE
        return FullError(self.path, str(error), is_at_limit=is_at_limit)

    def allow(self, size: int) -> None:
        """Set the size in bytes that the file will have at most."""
        self.largest = size
        self._connection.execute(f"PRAGMA max_page_count = {size // self._page}")

    def add(self, table: Table[Record], records: Iterable[Record]) -> None:
        """Add records after the existing ones of the table; inside a transaction."""
        self._make(table)
        start = self._next_indices.get(table.name, 0)
        rows = ((location, *table.write(record)) for location, record in enumerate(records, start))
        cursor = self._connection.executemany(table.insertion, rows)
        self._next_indices[table.name] = start + max(cursor.rowcount, 0)

    def _make(self, table: Table[Any]) -> None:
        """Make sure that a table exists: most kinds of evidence are in few recordings."""
        if table.is_late and table.name not in self._next_indices:
            definition = table.definition.replace("TABLE", "TABLE IF NOT EXISTS", 1)
            self._connection.execute(definition)
            self._next_indices[table.name] = 0

    def add_norms(self, step: int, rows: Sequence[NormRow]) -> None:
        """Add what a step of a run has measured of its parameters; inside a transaction."""
        if rows:
            index = self.next_index(NORMS)
            self.norm_sets.add(index, step, rows)
            self._next_indices[NORMS] = index + 1

    def put(self, table: Table[Record], index: int, record: Record) -> None:
        """Write the record at an index, new or changed; inside a transaction."""
        self._make(table)
        self._connection.execute(table.replacement, (index, *table.write(record)))
        self._next_indices[table.name] = max(index + 1, self._next_indices.get(table.name, 0))

    def add_captured_step(self, captured: CapturedStep) -> None:
        """Add a captured step, without what it repeats of another; inside a transaction."""
        location = self._next_captured_step()
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
            self._make(twin)
            rows = ((location, index, *twin.write(one)) for index, one in enumerate(records))
            self._connection.executemany(twin.insertion, rows)

    def skip_captured_steps(self, count: int) -> None:
        """Leave out captured steps, by whose indices others may refer to them."""
        self._next_indices[CAPTURED_STEPS.name] = self._next_captured_step() + count

    def _next_captured_step(self) -> int:
        if CAPTURED_STEPS.name not in self._next_indices:
            # Only with the first one: each takes a page.
            for definition in captured_step_definitions():
                self._connection.execute(definition)
        return self._next_indices.get(CAPTURED_STEPS.name, 0)

    def add_stored_gradients(self, gradients: Iterable[StoredGradient]) -> None:
        """Add gradients with their numbers; inside a transaction."""
        for gradient in gradients:
            rows = ((part.values, part.rows) for part in gradient.parts)
            start, count = self._add_large(STORED_GRADIENTS, PARTS, rows)
            self.add(STORED_GRADIENTS, [StoredRow(gradient=gradient, start=start, count=count)])

    def add_kept_batches(self, batches: Iterable[KeptBatch]) -> None:
        """Add batches with the elements of their tensors; inside a transaction."""
        for batch in batches:
            rows = ((one,) for one in batch.tensors)
            start, _count = self._add_large(KEPT_BATCHES, BATCH_TENSORS, rows)
            self.add(KEPT_BATCHES, [BatchRow.of(batch, start)])

    def _add_large(
        self, owner: Table[Any], parts: LargeTable[Any], rows: Iterable[tuple[object, ...]]
    ) -> tuple[int, int]:
        """Add the large rows of a record; return the index of the first, and their number."""
        if owner.name not in self._next_indices:
            self._connection.execute(owner.definition)
            self._connection.execute(parts.definition)
        start = self.next_index(parts.name)
        numbered = ((index, *cells) for index, cells in enumerate(rows, start))
        count = max(self._connection.executemany(parts.insertion, numbered).rowcount, 0)
        self._next_indices[parts.name] = start + count
        return start, count

    def next_index(self, table: str) -> int:
        """Return the index of the next record of a table."""
        return self._next_indices.get(table, 0)

    def remove(self, table: str, rows: range) -> None:
        """Delete rows; inside a transaction."""
        self._connection.execute(
            f"DELETE FROM {table} WHERE id >= ? AND id < ?", (rows.start, rows.stop)
        )

    def remove_captured_step(self, index: int) -> None:
        """Delete a captured step that no other repeats; inside a transaction."""
        self._connection.execute(f"DELETE FROM {CAPTURED_STEPS.name} WHERE id = ?", (index,))
        for table in captured_step_tables_by_name().values():
            if not table.is_late or table.name in self._next_indices:
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
            if self._is_lost:  # its logs are named as those of the file that has its name now
                return
            # Without WAL mode, the file can be read on read-only media. The switch needs exclusive
            # access; if another process reads the file, it stays as it is with its log, which is
            # fine.
            self._connection.execute("PRAGMA busy_timeout = 0")
            self._connection.execute("PRAGMA journal_mode = DELETE")

    @property
    def _is_lost(self) -> bool:
        """Whether the file has no longer its name."""
        return file_at(self.path) != self._file

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


PAGE = 4_096
"""Bytes of a page of the file."""

_SMALL = 8_000_000
"""Size in bytes up to which a recording has smaller pages."""


_SPARE = 2**24
"""Bytes: a disk with so much room is not full."""


class FullError(GradscopeError):
    """A recording has no room for what was added.

    Args:
        path: Its file.
        reason: What the file system says.
        is_at_limit: Whether it has the size that it may have.
    """

    def __init__(self, path: Path, reason: str, *, is_at_limit: bool) -> None:
        reason = "it has its largest size, see --keep" if is_at_limit else reason
        super().__init__(f"cannot write `{path}`: {reason}")
        self.is_at_limit = is_at_limit


_CHECKED = 256
"""Number of transactions between two checks whether the file still has its name."""


def _create(path: Path, header: Header, limit: int | None, *, is_new: bool) -> sqlite3.Connection:
    if is_new:
        remove_logs(path)
    # A run is written by any thread that makes a step, one at a time.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        # Each of the many tables takes a page at least.
        page = PAGE if limit is None or limit > _SMALL else PAGE // 4
        connection.execute(f"PRAGMA page_size = {page}")
        _lay_out(connection, header)
        if limit is not None:  # the log is besides the file
            pages = min(max(_LEAST_LOG, limit // 20), 1_000 * PAGE) // page
            connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")
            connection.execute(f"PRAGMA journal_size_limit = {limit // 10}")
    except BaseException as error:
        connection.close()
        if not isinstance(error, FileExistsError):
            path.unlink(missing_ok=True)
            remove_logs(path)
        raise
    return connection


def _lay_out(connection: sqlite3.Connection, header: Header) -> None:
    # Of an empty file nothing is lost by a power cut: do not wait for the disk.
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN EXCLUSIVE")
    if connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise FileExistsError("another process has just created it")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    for definition in _DEFINITIONS:
        connection.execute(definition)
    texts = write_header(header)
    connection.executemany("INSERT INTO meta VALUES (?, ?)", texts.items())
    connection.execute("COMMIT")
    # The tables exist before the log: whoever opens the file from now on recognizes it by them.
    start_log(connection)
    # Survives a killed process; after a power cut, the last steps may be missing.
    connection.execute("PRAGMA synchronous = NORMAL")
    # A first read takes the lock by which others see that the file is in use.
    connection.execute("SELECT name FROM meta").fetchone()


def start_log(connection: sqlite3.Connection) -> None:
    """Turn the log on. SQLite does not wait for processes that look at the new file meanwhile."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # The lowest byte is the error: the others tell where it came from, as during a
            # recovery.
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > end:
                raise
            time.sleep(_PAUSE)
        else:
            return


_PATIENCE, _PAUSE = 5.0, 0.01
"""Seconds for which others may hold a new file, and between two attempts."""
_LEAST_LOG = 800_000
"""Bytes of the log after which it is written back at the soonest: that waits for the disk."""
