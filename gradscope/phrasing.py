"""Formats numbers, counts and names for every output."""

import math

_WRITTEN_OUT = 9
"""Orders of magnitude up to which a factor is written out."""
_LITERAL_DIGITS = 6
"""Significant digits of a number in code."""
_THOUSAND = 3
"""Order of magnitude from which a factor's power of ten is given, too."""


def short(value: float | None, digits: int = 3) -> str:
    """Return a number as a sentence gives it: `0.0123`, `1,170`, `4.56e-7`, `1.2e7`.

    Args:
        value: The number; None is `-`.
        digits: Number of significant digits; zeros at the end are left out.
    """
    if value is None:
        return "-"
    digits_of, e, power = aligned(value, digits).partition("e")
    return f"{digits_of.rstrip('0').rstrip('.') if '.' in digits_of else digits_of}{e}{power}"


def aligned(value: float, digits: int = 3) -> str:
    """Return a number as a table gives it: with the zeros at the end, as `0.120` below `0.0123`."""
    if not math.isfinite(value) or value == 0.0:
        return f"{value:.0f}"
    rounded = f"{value:.{digits - 1}e}"
    mantissa, _, power = rounded.partition("e")
    exponent = int(power)
    if -5 < exponent < max(5, digits):
        return f"{float(rounded):,.{max(0, digits - 1 - exponent)}f}"
    return f"{mantissa}e{exponent}"


def literal(value: float | None) -> str:
    """Return a number as code gives it: `0.25`, `1170`, `3e6`."""
    return short(value, _LITERAL_DIGITS).replace(",", "")


def fold_text(decades: float) -> str:
    """Return a factor that something grows by, from its logarithm: `40,000-fold (10^4.6)`."""
    if decades > _WRITTEN_OUT:
        return f"10^{decades:.1f}-fold"
    return f"{_factor(decades)}-fold{_power(decades)}"


def times_text(factor: float) -> str:
    """Return how many times something is as large: `2.48 times`, `2,500 times (10^3.4)`."""
    if not 1000 <= factor < math.inf:
        return f"{short(factor)} times"
    decades = math.log10(factor)
    if decades > _WRITTEN_OUT:
        return f"10^{decades:.1f} times"
    return f"{_factor(decades)} times{_power(decades)}"


def _factor(decades: float) -> str:
    """Return two significant digits of a factor, written out."""
    return short(round(10**decades, 1 - math.floor(decades)), _WRITTEN_OUT + 2)


def _power(decades: float) -> str:
    return f" (10^{decades:.1f})" if decades >= _THOUSAND else ""


def counted(count: int, noun: str) -> str:
    """Return `1 node`, `1,234 nodes`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def printable(name: str) -> str:
    r"""Return the name with control characters and line breaks as escapes such as `\x1b`."""
    if name.isprintable():
        return name
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in name
    )
