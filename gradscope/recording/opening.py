"""Opens the file of a recording to read it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from gradscope.errors import GradscopeError

APPLICATION_ID = 0x47726164
"""`Grad`: identifies recordings among SQLite files."""

FORMAT = 2
"""Stored in `user_version`. It is incremented when an older gradscope cannot read the file."""

_MAGIC = b"SQLite format 3\x00"


@contextmanager
def opened_to_read(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a recording; tables that the block reads in sequence are consistent.

    Raises:
        GradscopeError: The file is missing, not a recording, damaged, or of a newer version.
    """
    _check_magic(file)
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as base:
            _check_format(base, file)
            base.execute("BEGIN")  # one transaction
            yield base
    except (sqlite3.Error, ValueError) as error:
        raise GradscopeError(f"cannot read `{file}`: {error}") from error
    except (KeyError, TypeError) as error:  # a wrong text or a missing value
        raise GradscopeError(f"cannot read `{file}`: it is damaged ({error!r})") from error


def _check_magic(file: Path) -> None:
    try:
        with file.open("rb") as stream:
            start = stream.read(len(_MAGIC))
    except OSError as error:
        raise GradscopeError(f"cannot read `{file}`: {error.strerror}") from error
    if not start:
        raise GradscopeError(f"`{file}` is empty")
    if start != _MAGIC:
        raise GradscopeError(f"`{file}` is not a recording of gradscope")


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
