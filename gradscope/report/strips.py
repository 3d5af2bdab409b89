"""Numbers as characters: bars on a logarithmic scale, sparklines, and strips over steps."""

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Self

from rich.text import Text

from gradscope.analysis.columns import Cells, Curve
from gradscope.analysis.folding import Span, last_name
from gradscope.analysis.rows import ModuleRow
from gradscope.frozen import dataclass
from gradscope.report.page import UNICODE, Signs

BAR = "cyan"

BROKEN_BAR = "bold red"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogScale:
    """Decades from `10**lowest` to `10**highest` on `width` columns."""

    lowest: int
    highest: int
    width: int

    @classmethod
    def over(cls, spans: Iterable[Span | None], width: int) -> Self | None:
        """Return the whole decades that contain all the numbers; None without a positive one."""
        logarithms = [
            math.log10(value)
            for span in spans
            if span is not None
            for value in (span.low, span.high)
            if value > 0 and math.isfinite(value)
        ]
        if not logarithms:
            return None
        # The lowest number still gets a visible bar.
        lowest = math.floor(min(logarithms) - 0.2)
        return cls(lowest=lowest, highest=max(math.ceil(max(logarithms)), lowest + 1), width=width)

    def position(self, value: float) -> float:
        """Return the column of a positive number."""
        share = (math.log10(value) - self.lowest) / (self.highest - self.lowest)
        return min(max(share, 0.0), 1.0) * self.width


def bar(span: Span | None, scale: LogScale, signs: Signs) -> Text:
    """Return a bar up to the lowest number, and a lighter one on to the highest."""
    if span is None:
        return Text(" " * scale.width)
    if not math.isfinite(span.high):
        return Text("non-finite"[: scale.width].ljust(scale.width), style=BROKEN_BAR)
    if span.high == 0.0:
        return Text("zero".ljust(scale.width), style="magenta")
    low = scale.position(span.low) if span.low > 0 else 0.0
    high = scale.position(span.high)
    if math.ceil(high) <= math.ceil(low):
        return Text(_solid(high, signs).ljust(scale.width), style=BAR)
    solid = signs.full * math.floor(low)
    light = signs.range * (math.ceil(high) - len(solid))
    text = Text(solid, style=BAR)
    text.append(light, style=BAR)
    return text.append(" " * (scale.width - len(solid) - len(light)))


def _solid(length: float, signs: Signs) -> str:
    steps = len(signs.parts)
    # The lowest number still gets a visible bar.
    eighths = max(round(length * steps), 1)
    whole, part = divmod(eighths, steps)
    return signs.full * whole + (signs.parts[part] if part else "")


def axis(scale: LogScale, signs: Signs) -> tuple[Text, Text]:
    """Return the line with a tick at every decade, and the decades' numbers below it."""
    left, line, tick, right = tuple(signs.axis)
    ticks = [line] * (scale.width - 2)
    labels = [" "] * scale.width
    free = 0
    for decade in range(scale.lowest, scale.highest + 1):
        column = round((scale.width - 1) * (decade - scale.lowest) / (scale.highest - scale.lowest))
        if 0 < column < scale.width - 1:
            ticks[column - 1] = tick
        label = decade_text(decade)
        start = min(max(column - len(label) // 2, 0), scale.width - len(label))
        # Labels that would touch are left out.
        if start >= free:
            labels[start : start + len(label)] = label
            free = start + len(label) + 1
    return (
        Text(left + "".join(ticks) + right, style="dim"),
        Text("".join(labels), style="dim"),
    )


def decade_text(exponent: int) -> str:
    """Return `0.01`, `1`, `100`, `1e-5`."""
    return f"{10.0**exponent:g}" if -2 <= exponent <= 3 else f"1e{exponent}"


def sparkline(values: Sequence[float], signs: Signs, *, least: float = 0.0) -> str:
    """Return a character a number, from the lowest to the highest level.

    Args:
        values: The numbers.
        signs: The characters to use.
        least: How far lowest and highest level lie apart at least, so that noise stays flat.
    """
    if not values:
        return ""
    low, high = min(values), max(values)
    spread = max(high - low, least)
    top = len(signs.levels) - 1
    if spread == 0.0:
        return signs.levels[top // 2] * len(values)
    levels = [round(top * (value - low) / spread) for value in values]
    # At the bottom, a flat line would look like zeros.
    middle = (top - max(levels)) // 2
    return "".join(signs.levels[middle + level] for level in levels)


BROKEN, ZERO, NOTHING = "!", "0", " "
"""Values of a column that is NaN or infinite, exactly zero, or not measured."""

_LEAST_SHARE = 0.05
"""Relative variation below which a strip is drawn flat: it is noise."""

_LEAST_DECADES = 1.0
"""Smallest range of a logarithmic scale, in decades."""

_FAR = 1000.0
"""Ratio of positive numbers above which the scale is logarithmic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The numbers that the lowest and the highest character represent."""

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
            # The label is in the middle of its decade.
            # A scale has to begin above zero, whose logarithm is infinite.
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
        """Return the position of a finite number between the ends, 0 to 1."""
        if self.is_logarithmic:
            if value <= 0:
                return 0.0
            value, low, high = math.log10(value), math.log10(self.low), math.log10(self.high)
        else:
            low, high = self.low, self.high
        # The difference of two huge numbers would be infinite.
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
    # A linear scale has a level for zero.
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
    """Width of the extreme value; 0 if there is no space for it."""


LABEL = 12
"""Width of short labels."""

_GAP = 2

_WIDE = 112
"""Minimum number of characters of a line that shows extremes."""

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
