"""The characters of text reports that are not letters."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """The characters of the report that are not letters."""

    full: str
    parts: str
    """A cell filled from the left by 0, 1, 2, … equal parts."""
    range: str
    """What a bar goes on with from the lowest to the highest of several numbers."""
    levels: str
    """Signs of a sparkline, from low to high."""
    axis: str
    """Left end, line, tick and right end of a scale."""
    dash: str
    ellipsis: str
    times: str
    arrow: str
    separator: str
    bar: str
    """Between line numbers and code."""
    rule: str
    """Sign of a horizontal line."""


UNICODE = Signs(
    full="█",
    parts=" ▏▎▍▌▋▊▉",
    range="▒",
    levels="▁▂▃▄▅▆▇█",
    axis="└─┴┘",
    dash="—",
    ellipsis="…",
    times="×",  # noqa: RUF001 - the sign of multiplication is meant
    arrow="→",
    separator=" · ",
    bar="│",
    rule="─",
)
ASCII = Signs(
    full="#",
    parts=" #",
    range="-",
    levels="_.:-=+*#",
    axis="|-+|",
    dash="-",
    ellipsis="..",
    times="x",
    arrow="->",
    separator=" | ",
    bar="|",
    rule="-",
)

_TO_ASCII = {
    ord(sign): getattr(ASCII, name)
    for name in ("dash", "ellipsis", "times", "arrow")
    for sign in getattr(UNICODE, name)
} | {
    **dict(zip(map(ord, UNICODE.levels), ASCII.levels, strict=True)),
    ord(UNICODE.separator.strip()): ASCII.separator.strip(),
}


def in_ascii(text: str) -> str:
    """Return text with the signs of reports as a terminal shows them that has ASCII alone."""
    return text.translate(_TO_ASCII)
