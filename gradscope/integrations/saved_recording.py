"""The file of a trainer's recording, which a resumed training continues."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from gradscope.options.recording_options import KEEP
from gradscope.recording.paths import continuation_of, remove_recording
from gradscope.recording.store import absorb_continuation
from gradscope.recording.thinning.room import Room

_LEAST = 0.25
"""Smallest share of the usual room that a further part of a training gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRecording:
    """A recording in a file, and where this part of the training is recorded."""

    file: Path
    """File of the whole recording."""
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
        while free.exists():
            number += 1
            latest, free = free, save.with_name(f"{save.stem}-{number}{suffix}")
        if latest is None or not is_resumed:
            return cls(file=free)
        absorb_continuation(latest)
        remove_recording(continuation_of(latest))
        return cls(file=latest, is_continued=True)

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
