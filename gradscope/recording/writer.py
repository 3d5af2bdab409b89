"""Writes a recording's file step by step. Committed data survives a killed process."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self

from gradscope.errors import GradscopeError
from gradscope.recording.captured_step_tables import (
    CAPTURED_STEPS,
    CapturedStepRow,
    captured_step_definitions,
    captured_step_tables_by_name,
)
from gradscope.recording.contents import all_tables, contents
from gradscope.recording.meta import Header, header_of, write_header
from gradscope.recording.records import CapturedStep
from gradscope.recording.repeated_captures import own_part
from gradscope.recording.stored_gradient import StoredGradient
from gradscope.recording.stored_gradient_tables import (
    PART_DEFINITION,
    PART_INSERTION,
    PARTS,
    STORED_GRADIENTS,
    StoredRow,
)
from gradscope.recording.table import Cells, Record, Table

APPLICATION_ID = 0x47726164
"""`Grad`: identifies recordings among SQLite files."""
FORMAT = 1
"""Stored in `user_version`. It is incremented when an older gradscope cannot read the file."""

_DEFINITIONS = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID",
    *(table.definition for table in all_tables()),
    # For people in the sqlite3 shell; gradscope itself reads the tables.
    """CREATE VIEW parameter_gradient AS
       SELECT step, parameter.name, reach, norm, absolute_maximum, weight_norm, update_norm, reason
       FROM parameter_stat JOIN parameter ON parameter.id = parameter_stat.parameter""",
    """CREATE VIEW tensor_gradient AS
       SELECT step, module.path AS module, operation, file, line, norm, absolute_maximum, reason
       FROM tensor_stat JOIN node ON node.id = tensor_stat.node
       LEFT JOIN module_call ON module_call.id = node.module_call
       LEFT JOIN module ON module.id = module_call.module
       LEFT JOIN site ON site.id = node.site""",
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

    Raises:
        GradscopeError: The file exists and `force` is not set, or it cannot be written.
    """

    def __init__(self, path: str | PathLike[str], header: Header, *, force: bool = False) -> None:
        self.path = Path(path)
        check_free(self.path, force=force)
        # By table: number of rows, which is the next record's index.
        self._places: dict[str, int] = {}
        try:
            self.path.unlink(missing_ok=True)
            remove_logs(self.path)
            self._connection = _create(self.path, header)
        except (OSError, sqlite3.Error) as error:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
                remove_logs(self.path)
            raise unwritable(self.path, str(error)) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything added inside together: the file gets all of it, or nothing.

        Raises:
            GradscopeError: The file cannot be written any more, for example on a full disk.
        """
        places = dict(self._places)
        self._connection.execute("BEGIN")
        try:
            yield
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise unwritable(self.path, str(error)) from error
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
                self._places = places

    def add(self, table: Table[Record], records: Iterable[Record]) -> None:
        """Add records after the existing ones of the table; inside a transaction."""
        start = self._places.get(table.name, 0)
        rows = ((place, *table.write(record)) for place, record in enumerate(records, start))
        cursor = self._connection.executemany(table.insertion, rows)
        self._places[table.name] = start + max(cursor.rowcount, 0)

    def add_cells(
        self, table: Table[Record], columns: Sequence[str], rows: Sequence[Cells]
    ) -> None:
        """Add rows that are cells already, with some columns; the others are NULL."""
        start = self._places.get(table.name, 0)
        numbered = [(place, *cells) for place, cells in enumerate(rows, start)]
        self._connection.executemany(table.insertion_of(columns), numbered)
        self._places[table.name] = start + len(rows)

    def put(self, table: Table[Record], place: int, record: Record) -> None:
        """Write the record at an index, new or changed; inside a transaction."""
        self._connection.execute(table.replacement, (place, *table.write(record)))
        self._places[table.name] = max(place + 1, self._places.get(table.name, 0))

    def add_captured_step(self, captured: CapturedStep) -> None:
        """Add a captured step, without what it repeats of another; inside a transaction."""
        if CAPTURED_STEPS.name not in self._places:
            for definition in captured_step_definitions():
                self._connection.execute(definition)
        place = self._places.get(CAPTURED_STEPS.name, 0)
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
            rows = ((place, index, *twin.write(one)) for index, one in enumerate(records))
            self._connection.executemany(twin.insertion, rows)

    def add_stored_gradients(self, gradients: Iterable[StoredGradient]) -> None:
        """Add gradients with their numbers; inside a transaction."""
        for gradient in gradients:
            if STORED_GRADIENTS.name not in self._places:
                self._connection.execute(STORED_GRADIENTS.definition)
                self._connection.execute(PART_DEFINITION)
            start = self._places.get(PARTS, 0)
            rows = (
                (place, part.values, part.rows) for place, part in enumerate(gradient.parts, start)
            )
            count = max(self._connection.executemany(PART_INSERTION, rows).rowcount, 0)
            self._places[PARTS] = start + count
            self.add(STORED_GRADIENTS, [StoredRow(gradient=gradient, start=start, count=count)])

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


def unwritable(path: Path, reason: str) -> GradscopeError:
    """Return the error of a recording that cannot be written."""
    return GradscopeError(f"cannot write `{path}`: {reason}")


def _create(path: Path, header: Header) -> sqlite3.Connection:
    # A run is written by any thread that makes a step, one at a time.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        _lay_out(connection, header)
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
