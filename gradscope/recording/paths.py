"""The file of a recording: whether its name is free, what it lacks, and how it is opened."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from gradscope.errors import GradscopeError

APPLICATION_ID = 0x47726164
"""`Grad`: identifies recordings among SQLite files."""

FORMAT = 2
"""Stored in `user_version`. It is incremented when an older gradscope cannot read the file."""


_PRIMARY = 0xFF
"""Bits of SQLite's error codes that tell the kind of error; the others tell which of the kind."""


def check_free(path: Path, *, force: bool) -> None:
    """Check that a recording may be written to a path.

    Raises:
        GradscopeError: The path exists, and `force` is not set, it is no file, or a training writes
            it.
    """
    if path.is_dir():
        raise GradscopeError(f"cannot write `{path}`: it is a directory")
    if path.exists() and not path.is_file():
        raise GradscopeError(f"cannot write `{path}`: it is a device, not a file")
    if path.exists() and not force and path.stat().st_size:
        raise GradscopeError(
            f"`{path}` exists",
            help="choose another name, or overwrite it: --force, in Python force=True",
        )
    if path.exists() and _is_open_elsewhere(path):
        raise GradscopeError(
            f"`{path}` is being written", help="choose another name, or stop that training first"
        )


def _is_open_elsewhere(path: Path) -> bool:
    """Return whether another process has a recording open for longer than a reader does."""
    try:
        # Readers hold a recording for moments only: SQLite waits for them.
        with closing(sqlite3.connect(path, timeout=1.0)) as base:
            (mode,) = base.execute("PRAGMA journal_mode").fetchone()
            if mode == "wal":
                # Needs exclusive access, and merges the log that a killed process left.
                base.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        # The lowest byte is the error: the rest tells, for example, that a log is being recovered.
        return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
    return False


def claim(path: Path) -> bool:
    """Return whether the file is new: create an empty one, unless there is an empty one.

    Raises:
        FileExistsError: There is a file that is not empty.
    """
    try:
        # Exclusively, so that only one of two processes that start at once gets the name.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError:
        if path.stat().st_size:
            raise
        return False
    return True


def file_at(path: Path) -> tuple[int, int] | None:
    """Return what identifies the file of a name; None without one."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


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


def unwritable(path: Path, reason: str) -> GradscopeError:
    """Return the error of a recording that cannot be written."""
    return GradscopeError(f"cannot write `{path}`: {reason}")


def cut_off(file: Path) -> str | None:
    """Return what a damaged file lacks, if it is shorter than it says."""
    with suppress(OSError):
        size = file.stat().st_size
        # Only where reading failed: closing a file drops all locks that the process has on it.
        with file.open("rb") as stream:
            start = stream.read(100)
        # SQLite's header has the page size here, with 1 for 65,536, and the number of pages from
        # byte 28.
        page = int.from_bytes(start[16:18], "big")
        whole = int.from_bytes(start[28:32], "big") * (65_536 if page == 1 else page)
        if size < whole:
            return f"it is cut off: {size:,} of {whole:,} bytes are there"
    return None


@contextmanager
def opened_to_read(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a recording; tables that the block reads in sequence are consistent.

    Raises:
        GradscopeError: The file is missing, not a recording, damaged, or of a newer version.
    """
    _check_file(file)
    try:
        with closing(_connected(file)) as base:
            _check_format(base, file)
            base.execute("BEGIN")  # one transaction
            yield base
    except sqlite3.OperationalError as error:
        raise GradscopeError(f"cannot read `{file}`: {error}", cause=cut_off(file)) from error
    except sqlite3.Error as error:
        # SQLite looks at the file with the first query only, and not when it is opened.
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            raise GradscopeError(f"`{file}` is not a recording of gradscope") from error
        raise _damaged(file, error) from error
    except ValueError as error:
        raise GradscopeError(f"cannot read `{file}`: {error}", cause=cut_off(file)) from error
    except (KeyError, TypeError) as error:  # a wrong text or a missing value
        raise _damaged(file, repr(error)) from error


def _connected(file: Path) -> sqlite3.Connection:
    """Open a file that exists, read-only if SQLite can read it so."""
    # By URI: only so can SQLite be kept from creating a file. `as_uri` escapes a `?`.
    uri = file.absolute().as_uri()
    base = sqlite3.connect(f"{uri}?mode=ro", uri=True)
    try:
        base.execute("PRAGMA user_version")
    except sqlite3.OperationalError as error:
        base.close()
        # A process was killed within its first transaction, which SQLite has to roll back.
        if error.sqlite_errorcode & _PRIMARY != sqlite3.SQLITE_READONLY:
            raise
        return sqlite3.connect(f"{uri}?mode=rw", uri=True)
    except BaseException:
        base.close()
        raise
    return base


def _damaged(file: Path, reason: object) -> GradscopeError:
    what = f"cannot read `{file}`: it is damaged ({reason})"
    return GradscopeError(what, cause=cut_off(file))


def _check_file(file: Path) -> None:
    """Check that there is something to read.

    Nothing but SQLite may open a recording that this process writes: closing it would drop the
    locks of the process, and others would see the file as unused.
    """
    try:
        is_empty = not file.stat().st_size
    except OSError as error:
        raise GradscopeError(f"cannot read `{file}`: {error.strerror}") from error
    if file.is_dir():
        raise GradscopeError(f"cannot read `{file}`: it is a directory")
    if not os.access(file, os.R_OK):
        raise GradscopeError(f"cannot read `{file}`: permission denied")
    if is_empty:
        raise GradscopeError(f"`{file}` is empty")


def _check_format(base: sqlite3.Connection, file: Path) -> None:
    (application,) = base.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise GradscopeError(
            f"`{file}` is a SQLite file of another program, not a recording of gradscope"
        )
    (version,) = base.execute("PRAGMA user_version").fetchone()
    if version > FORMAT:
        raise GradscopeError(
            f"`{file}` has format {version}; this gradscope reads formats up to {FORMAT}",
            help="read it with the gradscope that wrote it, or a newer one",
        )
