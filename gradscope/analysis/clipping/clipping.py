"""The clipping of a recording: of a target's batches, or of a training run."""

from dataclasses import dataclass
from typing import Self

from gradscope.analysis.clipping.run import run_sections
from gradscope.analysis.clipping.sections import Section
from gradscope.analysis.clipping.trial import trial_section
from gradscope.errors import GradscopeError
from gradscope.recording.evidence.clipping import ClipTrial
from gradscope.recording.records import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class Clipping:
    """What clipping does, or would do."""

    trial: ClipTrial | None
    """How a target's gradients were measured; None for a run."""
    sections: tuple[Section, ...]
    """Sections of a run, one per line that clips; without clips one per optimizer."""

    @classmethod
    def of(cls, recording: Recording) -> Self | None:
        """Return that of a recording; None where it tells nothing of clipping."""
        for trial in recording.evidence_of(ClipTrial):
            return cls(trial=trial, sections=(trial_section(recording, trial),))
        sections = run_sections(recording)
        return cls(trial=None, sections=sections) if sections else None

    @classmethod
    def expected_of(cls, recording: Recording) -> Self:
        """Return that of a recording which is to tell of clipping.

        Raises:
            GradscopeError: It tells nothing of it.
        """
        clipping = cls.of(recording)
        if clipping is None:
            name = recording.target.name
            raise GradscopeError(
                f"the recording of {name} has no clip call, and no steps to measure one",
                help="use gradscope clip-report TARGET, or record a script with gradscope run",
            )
        return clipping
