"""How numbers are written for people."""


def number(value: float | None) -> str:
    """Return three significant digits; `-` for None."""
    return "-" if value is None else f"{value:.3g}"
