"""How large the forward's values are, in decades."""

import math

from gradscope.analysis.recording_index import RecordingIndex
from gradscope.recording.evidence.forward import ForwardStat
from gradscope.recording.records import NodeRecord, TensorRef


class ForwardLevels:
    """log10 of the root mean squares of the first forward's values."""

    def __init__(self, indexed: RecordingIndex) -> None:
        self._stats = {stat.tensor: stat for stat in indexed.recording.evidence_of(ForwardStat)}

    def level(self, node: NodeRecord) -> float | None:
        """Return a node's level; None where it was not measured, is zero or not finite."""
        stat = self._stats.get(TensorRef(node=node.index, slot=0))
        if stat is None or not 0 < stat.rms < math.inf:
            return None
        return math.log10(stat.rms)
