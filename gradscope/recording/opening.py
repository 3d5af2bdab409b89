"""Opens the file of a recording to read it."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from gradscope.errors import GradscopeError
from gradscope.recording.paths import cut_off

APPLICATION_ID = 0x47726164
"""`Grad`: identifies recordings among SQLite files."""

FORMAT = 2
"""Stored in `user_version`. It is incremented when an older gradscope cannot read the file."""


@contextmanager
def opened_to_read(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a recording; tables that the block reads in sequence are consistent.

    Raises:
        GradscopeError: The file is missing, not a recording, damaged, or of a newer version.
    """
    _check_file(file)
    try:
        # By URI: only so can SQLite be kept from creating a file. `as_uri` escapes a `?`.
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as base:
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
