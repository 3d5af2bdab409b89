"""Decides which rank of a watched job reports on all of them, and gathers their recordings."""

import hashlib
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from gradscope.analysis.job import identity_of
from gradscope.analysis.job_failures import is_communication
from gradscope.cli.rank_recordings import Loaded, grouped, rank_files
from gradscope.errors import GradscopeError
from gradscope.recording.evidence.ranks import RankIdentity
from gradscope.recording.records import Recording
from gradscope.recording.run_ending import RunEnding
from gradscope.recording.store import load_recording

_CLAIM_SECONDS = 3600.0
"""Seconds for which the claim of a report is kept."""


def job_to_report(recording: Recording, path: Path) -> Loaded | None:
    """Return the recordings of a job if this rank is to report on it, None if another one does.

    The last rank of a host to finish reports, or before it one that fails by itself: the launcher
    ends the others.

    Args:
        recording: The recording of this rank, which is complete.
        path: Its file.
    """
    identity = identity_of(recording)
    if identity is None:
        return Loaded((path,), (recording,))
    job = _ranks_so_far(recording, path)
    finished = sum(one.finished for one in job.recordings)
    is_last = finished >= _expected(identity)
    if (is_last or _fails_by_itself(recording)) and _claim(identity):
        return job
    return None


def _expected(identity: RankIdentity) -> int:
    """Return the number of ranks whose recordings are in the same folder."""
    text = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(text) if text.isdecimal() else identity.world_size


def _ranks_so_far(recording: Recording, path: Path) -> Loaded:
    """Return the ranks of the same job in a folder, finished or not."""
    base = path.with_name(path.name.partition(".rank")[0] + ".gradscope")
    found = {path: recording}
    for other in rank_files(base):
        if other == path:
            continue
        with suppress(GradscopeError):
            found[other] = load_recording(other)
    same = [other for other, one in found.items() if other == path or _are_one(recording, one)]
    return grouped(same, [found[other] for other in same])[0]


def _are_one(recording: Recording, other: Recording) -> bool:
    """Return whether two recordings are of different ranks of one job."""
    identity = identity_of(other)
    if identity is None:
        return False
    try:
        return len(grouped([Path(), Path()], [recording, other])) == 1
    except GradscopeError:
        return False


def _fails_by_itself(recording: Recording) -> bool:
    ending = next(iter(recording.evidence_of(RunEnding)), None)
    if ending is None or ending.kind not in ("raised", "exited"):
        return False
    if ending.kind == "exited":
        return bool(ending.code)
    return not is_communication(ending.exception, ending.message)


def _claim(identity: RankIdentity) -> bool:
    """Return whether no other rank of this host has claimed the report."""
    key = f"{os.getppid()} {identity.job} {identity.world_size}"
    name = f"gradscope-{hashlib.sha256(key.encode()).hexdigest()[:16]}.reported"
    lock = Path(tempfile.gettempdir(), name)
    with suppress(OSError):
        if lock.stat().st_mtime < identity.clock:  # of an earlier job
            lock.unlink()
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        return False
    _remove_old_claims(lock.parent)
    return True


def _remove_old_claims(folder: Path) -> None:
    """Remove the claims of jobs that ended long ago: a slow rank of this job may still ask."""
    for other in folder.glob("gradscope-*.reported"):
        with suppress(OSError):
            if time.time() - other.stat().st_mtime > _CLAIM_SECONDS:
                other.unlink()
