"""Saves a recording to its SQLite file, and loads it again."""

import gc
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from os import PathLike
from pathlib import Path

from gradscope.errors import GradscopeError
from gradscope.recording.evidence_tables import evidence_tables
from gradscope.recording.meta import header_of, read_header
from gradscope.recording.records import Recording
from gradscope.recording.step_tables import (
    EVENTS,
    INPUT_STATS,
    PARAMETER_STATS,
    SKIPPED,
    STEPS,
    TENSOR_STATS,
)
from gradscope.recording.structure_tables import (
    CALLS,
    CUTS,
    EDGES,
    MODULES,
    NODES,
    PARAMETERS,
    SITES,
)
from gradscope.recording.table import Record, Table
from gradscope.recording.writer import (
    APPLICATION_ID,
    FORMAT,
    RecordingWriter,
    check_free,
    remove_logs,
    unwritable,
)

_MAGIC = b"SQLite format 3\x00"


def save_recording(recording: Recording, path: str | PathLike[str], *, force: bool = False) -> None:
    """Write a whole recording to a file; a file that was there stays whole until it is replaced.

    Raises:
        GradscopeError: The file exists and `force` is not set, or it cannot be written.
    """
    target = Path(path)
    check_free(target, force=force)
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with RecordingWriter(partial, header_of(recording), force=True) as writer:
            _add_all(writer, recording)
        remove_logs(target)
        partial.replace(target)
    except OSError as error:
        raise unwritable(target, str(error)) from error
    finally:
        partial.unlink(missing_ok=True)


def _add_all(writer: RecordingWriter, recording: Recording) -> None:
    with writer.transaction():
        writer.add(PARAMETERS, recording.parameters)
        writer.add(MODULES, recording.modules)
        writer.add(CALLS, recording.calls)
        writer.add(SITES, recording.sites)
        writer.add(NODES, recording.nodes)
        writer.add(EDGES, recording.edges)
        writer.add(STEPS, recording.steps)
        writer.add(EVENTS, recording.events)
        writer.add(PARAMETER_STATS, recording.parameter_stats)
        writer.add(TENSOR_STATS, recording.tensor_stats)
        writer.add(INPUT_STATS, recording.input_stats)
        writer.add(CUTS, recording.cuts)
        writer.add(SKIPPED, recording.skipped)
        for kind, table in evidence_tables().items():
            writer.add(table, recording.evidence_of(kind))


def load_recording(path: str | PathLike[str]) -> Recording:
    """Read a recording; of one that is still being written, the steps that are finished.

    Raises:
        GradscopeError: The file is missing, not a recording, damaged, or of a newer version.
    """
    file = Path(path)
    _check_magic(file)
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as base:
            _check_format(base, file)
            # One transaction: tables that are read one after the other belong together.
            base.execute("BEGIN")
            with _no_collection():
                return _read(base)
    except (sqlite3.Error, ValueError) as error:
        raise GradscopeError(f"cannot read `{file}`: {error}") from error


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector from going through a million new records again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


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


def _read(base: sqlite3.Connection) -> Recording:
    header = read_header(dict(base.execute("SELECT name, value FROM meta")))

    def records(table: Table[Record]) -> tuple[Record, ...]:
        present = {name for _, name, *_ in base.execute(f"PRAGMA table_info({table.name})")}
        return tuple(map(table.read, base.execute(table.selection(table.later - present))))

    present = {name for (name,) in base.execute("SELECT name FROM sqlite_master")}
    tables = [table for table in evidence_tables().values() if table.name in present]

    return Recording(
        version=header.version,
        command=header.command,
        environment=header.environment,
        target=header.target,
        finished=header.finished,
        parameters=records(PARAMETERS),
        modules=records(MODULES),
        calls=records(CALLS),
        sites=records(SITES),
        nodes=records(NODES),
        edges=records(EDGES),
        steps=records(STEPS),
        events=records(EVENTS),
        parameter_stats=records(PARAMETER_STATS),
        tensor_stats=records(TENSOR_STATS),
        skipped=records(SKIPPED),
        input_stats=records(INPUT_STATS),
        cuts=records(CUTS),
        evidence=tuple(record for table in tables for record in records(table)),
    )
