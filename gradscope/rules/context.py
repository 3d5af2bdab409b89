"""What a rule judges: an indexed recording, and the user's own limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gradscope.analysis.recording_index import RecordingIndex
from gradscope.recording.records import Recording
from gradscope.rules.settings import NormLimit


@dataclass(frozen=True)
class RuleContext(RecordingIndex):
    """A recording under judgement."""

    norm_limits: Mapping[str, NormLimit] = field(default_factory=dict)
    """The user's own, by pattern of module paths, as in `Settings.norm_limits`."""
    ranks: tuple[Recording, ...] = ()
    """Recordings of all ranks, where a whole job is judged."""
