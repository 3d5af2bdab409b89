"""The file of a trainer's recording, which a resumed training continues."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Self

from gradscope.analysis.ranks.job import identity_of
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.options.recording_options import KEEP
from gradscope.recording.paths import continuation_of
from gradscope.recording.records import Recording
from gradscope.recording.store import absorb_continuation, load_recording
from gradscope.recording.thinning.room import Room

_LEAST = 0.25
"""Smallest share of the usual room that a further part of a training gets."""

_WAIT, _PAUSE = 10.0, 0.1
"""Longest time to wait for other ranks to finish their recordings, and between two checks, in s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRecording:
    """A recording in a file, and where this part of the training is recorded."""

    file: Path
    """File of the whole recording."""
    rank: int | None = None
    """Rank of this process; None if it is the only one."""
    is_continued: bool = False
    """Whether it holds the part before, which a trainer has resumed."""

    @classmethod
    def choose(cls, save: Path, rank: int | None, *, is_resumed: bool) -> Self:
        """Return a recording that does not exist yet, or the latest one for a resumed training.

        Args:
            save: File that the user names.
            rank: Rank of this process, which becomes part of the name; None if it is the only one.
            is_resumed: Whether the trainer resumes from a checkpoint.

        Raises:
            GradscopeError: The part before cannot be read or written.
        """
        suffix = save.suffix if rank is None else f".rank{rank}{save.suffix}"
        latest, free, number = None, save.with_name(f"{save.stem}{suffix}"), 1
        # Never overwritten: a long training may be in the file.
        while free.exists():
            number += 1
            latest, free = free, save.with_name(f"{save.stem}-{number}{suffix}")
        if latest is None or not is_resumed:
            return cls(file=free, rank=rank)
        # A killed training has left its part beside the file.
        absorb_continuation(latest)
        return cls(file=latest, rank=rank, is_continued=True)

    @property
    def part(self) -> Path:
        """File of this part of the training."""
        return continuation_of(self.file) if self.is_continued else self.file

    def room(self) -> Room | None:
        """Return how much of this part is kept: what the part before leaves."""
        whole = Room.of(KEEP)
        if whole is None or not self.is_continued:
            return whole
        left = whole.limit - self.file.stat().st_size
        return replace(whole, limit=max(left, int(_LEAST * whole.limit)))

    def join(self) -> None:
        """Join this part with the one before.

        Raises:
            GradscopeError: The whole recording cannot be written. Both parts stay.
        """
        if self.is_continued:
            absorb_continuation(self.file)

    def of_all_ranks(self) -> "RecordedRanks":
        """Return the recordings of all ranks, as far as they finish within some seconds.

        Raises:
            GradscopeError: The own one cannot be read.
        """
        own = load_recording(self.file)
        identity = identity_of(own)
        if self.rank is None or identity is None:
            return RecordedRanks(recordings=(own,))
        until, found = time.monotonic() + _WAIT, {self.rank: own}
        files = {rank: self._of_rank(rank) for rank in range(identity.world_size)}
        missing: dict[int, str] = {}
        while len(found) < len(files):
            for rank in set(files) - set(found):
                other = _finished(files[rank], identity.job)
                if isinstance(other, str):
                    missing[rank] = other
                else:
                    found[rank] = other
            # Ranks on other hosts write elsewhere: waiting would not bring their files.
            if time.monotonic() > until or not all(files[rank].exists() for rank in files):
                break
            time.sleep(_PAUSE)
        return RecordedRanks(
            recordings=tuple(found[rank] for rank in sorted(found)),
            missing=tuple((rank, missing[rank]) for rank in sorted(set(files) - set(found))),
        )

    def _of_rank(self, rank: int) -> Path:
        suffix = f".rank{self.rank}{self.file.suffix}"
        stem = self.file.name.removesuffix(suffix)
        return self.file.with_name(f"{stem}.rank{rank}{self.file.suffix}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRanks:
    """The recordings of a job's ranks."""

    recordings: tuple[Recording, ...]
    """Recordings by rank, without those of missing ranks."""
    missing: tuple[tuple[int, str], ...] = ()
    """Missing ranks, each with the reason."""


def _finished(file: Path, job: str) -> Recording | str:
    """Return the recording of another rank, or the reason why it cannot be used yet."""
    if not file.exists():
        return f"there is no {file.name}"
    try:
        recording = load_recording(file)
    except GradscopeError as error:
        return error.what
    # A job before may have left files of these names.
    identity = identity_of(recording)
    if identity is None or identity.job != job:
        return f"{file.name} is of another job"
    return recording if recording.finished else f"{file.name} is not finished"
