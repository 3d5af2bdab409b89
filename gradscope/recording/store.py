"""The file of a recording: saved whole, and loaded."""

import gc
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path

from gradscope.errors import GradscopeError
from gradscope.recording.meta import header_of, read_header
from gradscope.recording.norm_table import norms_of
from gradscope.recording.paths import check_free, cut_off, remove_logs, unwritable
from gradscope.recording.records import Recording
from gradscope.recording.step_norms import (
    rows_by_step,
)
from gradscope.recording.stored_gradient_tables import (
    read_stored_gradients,
)
from gradscope.recording.tables import (
    contents,
    read_captured_steps,
    read_parameter_stats,
    recording_of,
)
from gradscope.recording.writer import APPLICATION_ID, FORMAT, RecordingWriter


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
    except OSError as error:
        raise unwritable(target, str(error)) from error
    finally:
        partial.unlink(missing_ok=True)


def load_recording(path: str | PathLike[str], *, is_outline: bool = False) -> Recording:
    """Read a recording; of a running process, the finished steps.

    Args:
        path: Its file.
        is_outline: Whether to leave out norms by step, captured steps and stored gradients, which
            are nearly all of a long run.

    Raises:
        GradscopeError: The file is missing, not a recording, damaged, or of a newer version.
    """
    file = Path(path)
    _check_file(file)
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as base:
            _check_format(base, file)
            # One transaction: tables that are read in sequence must be consistent.
            base.execute("BEGIN")
            with _no_collection():
                return _outline(base) if is_outline else _read(base, file)
    except sqlite3.OperationalError as error:
        raise GradscopeError(f"cannot read `{file}`: {error}", cause=cut_off(file)) from error
    except sqlite3.Error as error:
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
