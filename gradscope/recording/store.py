"""The file of a recording: saved whole, and loaded."""

import os
import sqlite3
from dataclasses import replace
from os import PathLike
from pathlib import Path

from gradscope.garbage import no_garbage_collection
from gradscope.recording.continued_recording import continued, start_of
from gradscope.recording.evidence.ranks import RankIdentity
from gradscope.recording.meta import header_of, read_header
from gradscope.recording.norm_table import norms_of
from gradscope.recording.paths import (
    check_free,
    continuation_of,
    opened_to_read,
    remove_logs,
    remove_recording,
    unwritable,
)
from gradscope.recording.records import Recording
from gradscope.recording.rows_in_file import (
    read_kept_batches,
    read_stored_gradients,
)
from gradscope.recording.step_norms import (
    rows_by_step,
)
from gradscope.recording.tables import (
    captured_steps,
    contents,
    evidence_tables,
    read_parameter_stats,
    recording_of,
    records_in,
)
from gradscope.recording.writer import RecordingWriter


def save_recording(recording: Recording, path: str | PathLike[str], *, force: bool = False) -> None:
    """Write a whole recording to a file; an existing file stays whole until it is replaced.

    Raises:
        GradscopeError: The file exists and `force` is not set, or it cannot be written.
    """
    target = Path(path)
    check_free(target, force=force)
    # In the same folder: a file cannot replace one of another file system at once.
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
            writer.add_kept_batches(recording.kept_batches)
        # `check_free` has merged the old file's log into it, so that nothing of it is lost here.
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
    recording = replace(_load(file, is_outline=is_outline), file=str(path))
    following = continuation_of(file)
    if not following.exists() or not following.stat().st_size:
        return recording
    after = _load(following, is_outline=is_outline)
    start = start_of(after)
    # Without its first step, the training was killed before it was resumed.
    return recording if start is None else continued(recording, after, start)


def load_identity(path: Path) -> RankIdentity | None:
    """Return which rank a recording is of, without reading the rest; None outside of jobs.

    Raises:
        GradscopeError: The file is missing, not a recording, damaged, or of a newer version.
    """
    with opened_to_read(path) as base:
        return next(iter(evidence_tables()[RankIdentity].records(base)), None)


def absorb_continuation(path: Path) -> None:
    """Join a recording with the part in the file beside it, which is removed.

    Raises:
        GradscopeError: One cannot be read, or the whole recording cannot be written.
    """
    if continuation_of(path).exists():
        save_recording(load_recording(path), path, force=True)


def _load(file: Path, *, is_outline: bool) -> Recording:
    with opened_to_read(file) as base, no_garbage_collection():
        return _outline(base) if is_outline else _read(base, file)


def _read(base: sqlite3.Connection, file: Path) -> Recording:
    header = read_header(dict(base.execute("SELECT name, value FROM meta")))
    recording = recording_of(
        header,
        records_in(base),
        stats=read_parameter_stats(base),
        captured_steps=tuple(captured_steps(base)),
    )
    return replace(
        recording,
        # Absolute, because they are read later, when the working directory may be another.
        stored_gradients=read_stored_gradients(base, file.absolute()),
        kept_batches=read_kept_batches(base, file.absolute()),
    )


def _outline(base: sqlite3.Connection) -> Recording:
    header = read_header(dict(base.execute("SELECT name, value FROM meta")))
    recording = recording_of(header, records_in(base), stats=())
    return replace(recording, is_outline=True)
