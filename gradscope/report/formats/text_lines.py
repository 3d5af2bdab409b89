"""Lines of a document in the style and the characters of a page."""

import re
from textwrap import TextWrapper

from rich.cells import cell_len
from rich.text import Text

from gradscope.report.document import Line, Mark
from gradscope.report.page import Page

STYLES: dict[Mark, str] = {
    "plain": "",
    "strong": "bold",
    "soft": "dim",
    "good": "bold green",
    "notable": "magenta",
    "bad": "bold red",
    "error": "bold red",
    "warning": "bold magenta",
    "note": "bold cyan",
    "code": "",
    "name": "",
}


def written(line: Line, page: Page, width: int = 0) -> Text:
    """Return a line on a page; names in it are broken at dots to fit the columns, if given."""
    text = Text(overflow="fold")
    for word in line if isinstance(line, tuple) else (line,):
        if isinstance(word, str):
            text.append(page.spell(word))
        elif width and word.mark == "name":
            text.append_text(page.path(word.text, width))
        else:
            text.append(page.spell(word.text), STYLES[word.mark])
    return text


def hanging(text: Text, width: int, *, indent: int = 0, further: int = 0) -> Text:
    """Return text in lines that begin after `indent` spaces, all but the first after `further`."""
    plain = text.plain
    shown = Text(overflow="fold")
    start = 0
    lines = _Wrapper(
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + further),
        break_on_hyphens=False,
    )
    for turn, line in enumerate(lines.wrap(plain)):
        margin = indent + further if turn else indent
        words = line[margin:]
        # textwrap knows no styles: each line is found again in the styled text.
        start = plain.index(words, start)
        shown.append("\n" if turn else "").append(" " * margin)
        shown.append_text(text[start : start + len(words)])
        start += len(words)
    return shown


class _Wrapper(TextWrapper):
    """Breaks a path that is longer than a line after its slashes."""

    def _split(self, text: str) -> list[str]:
        room = self.width - len(self.subsequent_indent)
        return [
            part
            for word in super()._split(text)
            for part in ([word] if len(word) <= room else re.split(r"(?<=/)(?=.)", word))
        ]


def cut(text: str, width: int, page: Page) -> str:
    """Return text in this number of columns; a longer text loses its end."""
    if cell_len(text) <= width:
        return text
    room = max(width - len(page.signs.ellipsis), 1)
    shown = Text(text)
    shown.truncate(room)
    return shown.plain.rstrip() + page.signs.ellipsis
