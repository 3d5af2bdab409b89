"""Names and numbers as text of charts: plotly interprets tags in any text."""

from collections.abc import Iterable, Sequence
from html import escape

from gradscope.phrasing import printable, short
from gradscope.report.page import UNICODE

LONGEST = 90
"""Maximum length of a name in characters; longer names lose their middle."""


def lettered(name: str, longest: int = LONGEST) -> str:
    """Return a name for plotly, without markup, on one line, and not too long."""
    return escape(shortened(printable(name), longest), quote=False)


def shortened(name: str, longest: int) -> str:
    """Return a name without its middle if it is too long; ends of paths say the most."""
    if len(name) <= longest:
        return name
    start = longest // 3
    return f"{name[:start]}…{name[len(name) - (longest - start - 1) :]}"


def hover(title: str, lines: Iterable[tuple[str, str | None]]) -> str:
    """Return the tooltip of a mark: its name, and its values by name."""
    reported = [f"<b>{lettered(title)}</b>"]
    reported += [f"{name}  {lettered(text)}" for name, text in lines if text]
    return "<br>".join(reported)


def number(value: float | None) -> str:
    """Return a number with three digits."""
    return UNICODE.dash if value is None else short(value)


_EXACT = 6
"""Significant digits where there is room."""


def exact(value: float | None) -> str:
    """Return a number with the digits of tooltips."""
    return UNICODE.dash if value is None else short(value, _EXACT)


_LONGEST = 34
"""Maximum length of a label in characters."""


def common_prefix(names: Sequence[str]) -> str:
    """Return the modules that all names begin with, as `model.layers.`; may be empty.

    Of each name, one part at least is left.
    """
    parts = [name.split(".") for name in names]
    shared: list[str] = []
    for column in zip(*(part[:-1] for part in parts), strict=False):
        if len(set(column)) > 1:
            break
        shared.append(column[0])
    return "".join(f"{part}." for part in shared)


def row_labels(names: Sequence[str], longest: int = _LONGEST) -> list[str]:
    """Return a label for each row, no two alike: rows of one label would be one."""
    labels: dict[str, None] = {}
    for name in names:
        label = lettered(name, longest)
        turn = 2
        while label in labels:
            label = f"{lettered(name, longest)} ({turn})"
            turn += 1
        labels[label] = None
    return list(labels)
