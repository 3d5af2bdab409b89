"""How numbers are written in text reports: three significant digits."""

import math

from gradscope.analysis.folding import Span
from gradscope.recording.records import GradientStat
from gradscope.report.page import Signs


def figure(value: float | None, signs: Signs) -> str:
    """Return `0.0123`, `4.56e-7`; `0` for exactly zero alone, a dash for None."""
    if value is None:
        return signs.dash
    if not math.isfinite(value) or value == 0.0:
        return f"{value:.0f}"
    rounded = f"{value:.2e}"
    digits, _, power = rounded.partition("e")
    exponent = int(power)
    if -4 < exponent < 4:
        return f"{float(rounded):.{max(0, 2 - exponent)}f}"
    return f"{digits}e{exponent}"


def broken_text(gradient: GradientStat) -> str:
    """Return `3 of 100 non-finite`, of a gradient that is; without numbers if none were counted."""
    if gradient.nonfinite is None:
        return "non-finite"
    return f"{gradient.nonfinite:,} of {gradient.numel:,} non-finite"


def span_figure(span: Span | None, signs: Signs) -> str:
    """Return `0.12…3.45`, one number where both ends look the same."""
    if span is None:
        return signs.dash
    low, high = figure(span.low, signs), figure(span.high, signs)
    return low if low == high else f"{low}{signs.ellipsis}{high}"


def short_count(count: int) -> str:
    """Return `412`, `28.3k`, `1.24M`, `7.24B`."""
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        # 999,950 is 1.00M, not 1000k.
        if count >= size * 0.9995:
            scaled = count / size
            places = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
            return f"{scaled:.{places}f}{letter}"
    return str(count)
