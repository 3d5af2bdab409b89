"""Bars on a logarithmic scale, and sparklines, in characters."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from rich.text import Text

from gradscope.analysis.folding import Span
from gradscope.report.signs import Signs

BAR = "cyan"
BROKEN = "bold red"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogScale:
    """Decades from `10**lowest` to `10**highest` on `width` columns."""

    lowest: int
    highest: int
    width: int

    @classmethod
    def over(cls, spans: Iterable[Span | None], width: int) -> Self | None:
        """Return the whole decades that hold all the numbers; None without a positive one."""
        logarithms = [
            math.log10(value)
            for span in spans
            if span is not None
            for value in (span.low, span.high)
            if value > 0 and math.isfinite(value)
        ]
        if not logarithms:
            return None
        # The lowest number of all gets a bar that can be seen.
        lowest = math.floor(min(logarithms) - 0.2)
        return cls(lowest=lowest, highest=max(math.ceil(max(logarithms)), lowest + 1), width=width)

    def position(self, value: float) -> float:
        """Return how many columns a positive number lies from the left."""
        share = (math.log10(value) - self.lowest) / (self.highest - self.lowest)
        return min(max(share, 0.0), 1.0) * self.width


def bar(span: Span | None, scale: LogScale, signs: Signs) -> Text:
    """Return a bar up to the lowest number, and a lighter one on to the highest."""
    if span is None:
        return Text(" " * scale.width)
    if not math.isfinite(span.high):
        return Text("non-finite"[: scale.width].ljust(scale.width), style=BROKEN)
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
    # The lowest number of all is still something.
    eighths = max(round(length * steps), 1)
    whole, part = divmod(eighths, steps)
    return signs.full * whole + (signs.parts[part] if part else "")


def axis(scale: LogScale, signs: Signs) -> tuple[Text, Text]:
    """Return the line with a tick at every decade, and the decades' numbers under it."""
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
    middle = (top - max(levels)) // 2
    return "".join(signs.levels[middle + level] for level in levels)
