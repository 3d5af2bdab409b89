"""How norms are told apart by colour and thickness: by powers of ten."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Self

from gradscope.analysis.folding import Span
from gradscope.report.graph.drawing import Drawing

LEVELS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class NormScale:
    """The norms of a drawing, from the least that is not zero to the greatest that is finite."""

    low: float
    high: float

    @classmethod
    def of(cls, drawing: Drawing) -> Self | None:
        """Return the scale of a drawing; None where there is no norm to tell apart."""
        vertices = (placed.vertex.norms for placed in drawing.vertices)
        ends = list(_ends(chain(vertices, (placed.link.norms for placed in drawing.links))))
        return cls(low=min(ends), high=max(ends)) if ends else None

    def level(self, norms: Span) -> int:
        """Return 0 to 6; of a range that of its middle."""
        known = list(_ends([norms]))
        if not known:
            return 0
        middle = sum(map(math.log10, known)) / len(known)
        low, high = math.log10(self.low), math.log10(self.high)
        # Norms of one size are not told apart.
        room = max(0.0, 1.0 - (high - low)) / 2
        share = (middle - low + room) / (high - low + 2 * room)
        return min(LEVELS - 1, max(0, int(share * LEVELS)))


def _ends(ranges: Iterable[Span | None]) -> Iterable[float]:
    for norms in ranges:
        if norms is not None:
            ends = (norms.low, norms.high)
            yield from (end for end in ends if 0.0 < end < math.inf)
