"""How ratios and changes of numbers are written."""

import math

from gradscope.report.figures import figure
from gradscope.report.page import Signs

_TWICE = 1.0
"""From this increase on, it is told as a factor."""
_ONE = 0.005
"""What is nearer to 1 than this is not told apart by three digits."""
_MOST_DIGITS = 9


def change_text(before: float | None, after: float | None, signs: Signs) -> str:
    """Return `+5.5 %`, `x12.3` or `equal`; empty where nothing can be said."""
    if before is not None and before == after:
        return "equal"
    if before is None or after is None or before == 0 or not math.isfinite(before):
        return ""
    if not math.isfinite(after):
        return ""
    if before < 0 or after < 0 or 1 / (1 + _TWICE) < after / before < 1 + _TWICE:
        return percent((after - before) / abs(before))
    return f"{signs.times}{figure(after / before, signs)}"


def percent(share: float) -> str:
    """Return `+5.5 %`, `-0.0032 %`; `+0 %` of exactly nothing."""
    value = 100 * share
    digits = f"{value:+.2g}" if abs(value) < 99.5 else f"{value:+,.0f}"
    return f"{digits} %"


def limit_text(share: float) -> str:
    """Return `10 %` of a tolerance."""
    return f"{100 * share:.3g} %"


def ratio_text(ratio: float | None, signs: Signs) -> str:
    """Return a ratio in three digits, and in more where it is near to 1: `0.9999996`."""
    if ratio == 1.0:
        return "1"
    if ratio is None or not abs(ratio - 1) < _ONE:
        return figure(ratio, signs)
    digits = math.ceil(-math.log10(abs(ratio - 1)))
    return figure(ratio, signs) if digits > _MOST_DIGITS else f"{ratio:.{digits}f}"


def share_text(share: float, signs: Signs) -> str:
    """Return how far something is off: `1.9 %`, a factor where that is more than once."""
    if share >= _TWICE:
        return f"{signs.times}{figure(1 + share, signs)}"
    return f"{100 * share:.2g} %"
