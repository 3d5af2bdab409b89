"""How text, tables and code are spelled in Markdown, whatever they hold."""

import re
from collections.abc import Iterable

from gradscope.phrasing import printable
from gradscope.report.snippets import Snippet

_PLAIN = re.compile(r"[\w.:/ ,=()\[\]+-]+", re.ASCII)


_ACTIVE = re.compile(r"[^\w\s.,:;()/=+'\"→·×…—▁-█%-]|_")  # noqa: RUF001 - multiplication


_BACKTICKS = re.compile("`+")


def code(text: str) -> str:
    """Return text in code type.

    Inside a code span, nothing can escape a backtick, nor a pipe everywhere: such text is spelled
    in character references.
    """
    text = printable(text)
    if _PLAIN.fullmatch(text):
        return f"`{text}`"
    return f"<code>{escape(text)}</code>" if text else ""


def escape(text: str) -> str:
    """Return text in which Markdown and HTML find nothing to act on, mentions included."""
    return _ACTIVE.sub(lambda sign: f"&#{ord(sign[0])};", printable(text))


def prose(text: str) -> str:
    """Return a sentence in which what stands between backticks is code, and nothing else acts."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one of them has no partner
        return escape(text)
    return "".join(
        code(part) if position % 2 else escape(part) for position, part in enumerate(parts)
    )


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table, whose cells are Markdown already."""
    titles = tuple(header)
    lines = [titles, ("---",) * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def fenced(snippet: Snippet) -> str:
    """Return lines of code, a mark before the one meant, in a fence longer than any in them."""
    lines = [
        f"{'>' if line.number == snippet.line else ' '} {line.number} {printable(line.text)}"
        for line in snippet.lines
    ]
    return _fence(lines, "python")


def preformatted(lines: Iterable[str]) -> str:
    """Return lines of text that keep their columns."""
    return _fence([printable(line) for line in lines], "text")


def _fence(lines: list[str], language: str) -> str:
    runs = _BACKTICKS.findall("\n".join(lines))
    fence = "`" * max(3, 1 + max(map(len, runs), default=0))
    return "\n".join([f"{fence}{language}", *lines, fence])
