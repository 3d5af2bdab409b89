"""How large the forward's values are, in decades."""

import math

from gradscope.recording.evidence.forward_stat import ForwardStat
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.rules.case import Case


class ForwardLevels:
    """log10 of the root mean squares of the first forward's values."""

    def __init__(self, case: Case) -> None:
        self._stats = {stat.tensor: stat for stat in case.recording.evidence_of(ForwardStat)}

    def level(self, node: NodeRecord) -> float | None:
        """Return a node's level; None where it was not measured, is zero or not finite."""
        stat = self._stats.get(TensorRef(node=node.index, slot=0))
        if stat is None or not 0 < stat.rms < math.inf:
            return None
        return math.log10(stat.rms)
