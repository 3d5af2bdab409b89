"""Numbers over the steps as one sign each: their scale, and how wide they are drawn."""

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from gradscope.analysis.columns import Cells, Curve
from gradscope.analysis.folding import last_name
from gradscope.analysis.rows import ModuleRow
from gradscope.report.signs import UNICODE, Signs

BROKEN, ZERO, NOTHING = "!", "0", " "
"""What a column shows that is NaN or infinite, exactly zero, or was not measured."""
_LEAST_SHARE = 0.05
"""What moves by less of its size is drawn as flat as that: noise is no mountain."""
_LEAST_DECADES = 1.0
"""Smallest range of a logarithmic scale, in decades."""
_FAR = 1000.0
"""Positive numbers that span more are drawn on a logarithmic scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Which numbers the lowest and the highest character stand for."""

    low: float
    high: float
    is_logarithmic: bool

    @classmethod
    def decades(cls, strips: Iterable[Cells]) -> Self:
        """Return the logarithmic scale that holds all the positive numbers."""
        known = [
            value
            for cells in strips
            for value in cells
            if value is not None and 0 < value < math.inf
        ]
        low, high = (min(known), max(known)) if known else (1.0, 1.0)
        wanted = _LEAST_DECADES - (math.log10(high) - math.log10(low))
        if wanted > 0:
            # In the middle of its decade.
            low = max(low * 10 ** (-wanted / 2), math.ulp(0.0))
            high = min(high * 10 ** (wanted / 2), sys.float_info.max)
        return cls(low=low, high=high, is_logarithmic=True)

    @classmethod
    def linear(cls, cells: Cells) -> Self:
        """Return a linear scale; a logarithmic one for positive numbers that span very much."""
        known = [value for value in cells if value is not None and math.isfinite(value)]
        low, high = (min(known), max(known)) if known else (0.0, 0.0)
        if low > 0 and high / low > _FAR:
            return cls.decades([cells])
        wanted = _LEAST_SHARE * max(abs(low), abs(high)) - (high - low)
        if wanted > 0:
            low = max(low - wanted / 2, -sys.float_info.max)
            high = min(high + wanted / 2, sys.float_info.max)
        return cls(low=low, high=high, is_logarithmic=False)

    def share(self, value: float) -> float:
        """Return where a finite number lies between the ends, 0 to 1."""
        if self.is_logarithmic:
            if value <= 0:
                return 0.0
            value, low, high = math.log10(value), math.log10(self.low), math.log10(self.high)
        else:
            low, high = self.low, self.high
        # Halves, because the difference of two huge numbers is infinite.
        spread = high / 2 - low / 2
        return min(max((value / 2 - low / 2) / spread, 0.0), 1.0) if spread > 0 else 0.5


def scale_of(curve: Curve) -> Scale:
    """Return the scale that a curve is drawn on."""
    cells = curve.course.cells
    is_linear = curve.kind in ("loss", "rate")
    return Scale.linear(cells) if is_linear else Scale.decades([cells])


def strip(cells: Cells, scale: Scale, signs: Signs = UNICODE) -> str:
    """Return the numbers as characters."""
    return "".join(_character(value, scale, signs) for value in cells)


def _character(value: float | None, scale: Scale, signs: Signs) -> str:
    if value is None:
        return NOTHING
    if not math.isfinite(value):
        return BROKEN
    if value == 0.0 and scale.is_logarithmic:
        return ZERO
    return signs.levels[round(scale.share(value) * (len(signs.levels) - 1))]


@dataclass(frozen=True, slots=True, kw_only=True)
class StripLayout:
    """How wide the parts of a line with a strip are, in characters."""

    label: int
    strip: int
    course: int
    extreme: int
    """0 where there is no room for it."""


LABEL = 12
"""Width of short labels."""
_GAP = 2
_WIDE = 112
"""Characters of a line that has room for extremes."""
_MODULE = 17
_COURSE, _EXTREME = 21, 26
_LONGEST = 84


def layout_for(width: int, *, label: int) -> StripLayout:
    """Return the layout of a line of that width, with labels of that width."""
    extreme = _EXTREME if width >= _WIDE else 0
    room = width - label - _COURSE - 2 * _GAP - (extreme + _GAP if extreme else 0)
    return StripLayout(
        label=label, strip=max(min(room, _LONGEST), 8), course=_COURSE, extreme=extreme
    )


def module_layout(width: int, modules: Iterable[ModuleRow]) -> StripLayout:
    """Return the layout for strips whose labels are the names of modules."""
    # Containers below the root may be merged with it.
    names = ((row.path if row.depth < 2 else last_name(row), row) for row in modules)
    widths = (2 * row.depth + len(f"{name} {row.class_name}") for name, row in names)
    widest = max(widths, default=0)
    label = max(min(width * 3 // 10, 30, max(widest, _MODULE)), 10)
    return layout_for(width, label=label)
