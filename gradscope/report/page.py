"""The page of a text report: its width, and its characters."""

import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Self

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from gradscope.analysis.view import short_location, shown_site
from gradscope.frozen import dataclass
from gradscope.phrasing import printable
from gradscope.recording.records import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """The characters of the report that are not letters."""

    full: str
    parts: str
    """Characters of a cell filled from the left by 0, 1, 2, … equal parts."""
    range: str
    """Character that extends a bar from the lowest to the highest of several numbers."""
    levels: str
    """Characters of a sparkline, from low to high."""
    axis: str
    """Left end, line, tick and right end of a scale."""
    dash: str
    ellipsis: str
    times: str
    arrow: str
    separator: str
    bar: str
    """Character between line numbers and code."""
    rule: str
    """Character of a horizontal line."""


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

# Documents hold these signs whatever the terminal is; bars and rules are drawn in the page's own.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Width, characters and the folder that paths are relative to."""

    width: int
    encoding: str
    signs: Signs
    root: str
    has_links: bool = False
    """Whether a reader can click on paths."""

    @classmethod
    def of(cls, console: Console, root: str) -> Self:
        """Return the page that a console writes on."""
        return cls(
            width=console.width,
            encoding=console.encoding,
            signs=UNICODE if _can_hold(console.encoding, UNICODE) else ASCII,
            root=root,
            has_links=knows_links(console.file, os.environ),
        )

    def link(self, location: str) -> Style:
        """Return the style of a `file:line` that opens the file, if that is there."""
        file, _, line = location.rpartition(":")
        # `as_uri` refuses a relative path.
        path = Path(file).absolute()
        if not (self.has_links and file and path.is_file()):
            return Style.null()
        return Style(link=f"{path.as_uri()}#{line}")

    def spell(self, name: str) -> str:
        """Return text from outside, with control and unprintable characters as escapes."""
        shown = printable(name)
        if self.signs is ASCII:
            shown = in_ascii(shown)
        # A name may contain what the encoding lacks, and an exception would cost the report.
        return shown.encode(self.encoding, "backslashreplace").decode(self.encoding)

    def text(self, name: str, style: str = "") -> Text:
        """Return text from outside verbatim: never markup, folded if it is too long."""
        return Text(self.spell(name), style=style, overflow="fold")

    def path(self, name: str, width: int, style: str = "", indent: int = 0) -> Text:
        """Return a dotted name or a path in lines of that width, which end at its parts.

        The lines begin after `indent` spaces, which are not counted in the width.
        """
        lines = [""]
        for part in _parts(self.spell(name), max(width, 1)):
            if lines[-1] and len(lines[-1]) + len(part) > width:
                lines.append("")
            lines[-1] += part
        margin = " " * indent
        return Text(margin + f"\n{margin}".join(lines), style=style, overflow="fold")

    def position(self, site: Site | None, width: int) -> Text:
        """Return `file:line` in at most this many columns, shortened in the middle."""
        return self.location("" if site is None else shown_site(site, self.root), width)

    def location(self, text: str, width: int) -> Text:
        """Return `file:line`, which may be empty, in the same way."""
        if not text:
            return Text(self.signs.dash, style="dim")
        short = short_location(text, self.signs.ellipsis)
        # The recording may come from Windows.
        path, _, number = short.replace("\\", "/").rpartition(":")
        line = f":{number}"
        path = self._without_folders(path, width - len(line))
        shown = self.shorten(self.spell(path), width - len(line)) + line
        return Text(shown, self.link(text))

    def _without_folders(self, path: str, width: int) -> str:
        """Return a path without its first folders until it fits."""
        parts = path.split("/")
        first = 0
        while len(path) > width and first < len(parts) - 1:
            first += 1
            path = "/".join([self.signs.ellipsis, *parts[first:]])
        return path

    def shorten(self, text: str, width: int) -> str:
        """Return text in at most this many characters, with more of its end than of its start."""
        # Fewer characters say nothing of a name.
        room = max(width, 8)
        if len(text) <= room:
            return text
        start = room // 4
        end = room - start - len(self.signs.ellipsis)
        return f"{text[:start]}{self.signs.ellipsis}{text[-end:]}"


def _parts(name: str, width: int) -> Iterator[str]:
    """Yield the name up to each dot, a path up to each slash.

    Parts too long for a line end at underscores.
    """
    for whole in re.split(r"(?<=/)" if "/" in name else r"(?<=\.)", name):
        for part in [whole] if len(whole) <= width else re.split(r"(?<=_)", whole):
            # Equal pieces avoid a single dot at the end.
            size = math.ceil(len(part) / max(math.ceil(len(part) / width), 1))
            yield from (part[i : i + size] for i in range(0, len(part), max(size, 1)))


# A terminal cannot be asked whether it shows links, and others print their codes.
_LINKING_PROGRAMS = ("iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper", "Tabby", "rio")
_LINKING_TERMINALS = ("xterm-kitty", "alacritty", "foot", "xterm-ghostty", "wezterm", "contour")
_LINKING_VARIABLES = ("WT_SESSION", "KONSOLE_VERSION", "DOMTERM")
# VTE, on which GNOME's and other terminals are built, shows links from 0.50.0 on.
_FIRST_LINKING_VTE = 5000


def knows_links(stream: IO[str], environment: Mapping[str, str]) -> bool:
    """Return whether a stream is a terminal that shows links (OSC 8), and not their codes."""
    # Who wants no colours wants no codes in the text.
    if not stream.isatty() or environment.get("NO_COLOR"):
        return False
    vte = environment.get("VTE_VERSION", "")
    return (
        environment.get("TERM_PROGRAM") in _LINKING_PROGRAMS
        or environment.get("TERM", "").startswith(_LINKING_TERMINALS)
        or any(environment.get(name) for name in _LINKING_VARIABLES)
        or (vte.isdecimal() and int(vte) >= _FIRST_LINKING_VTE)
    )


def _can_hold(encoding: str, signs: Signs) -> bool:
    try:
        # The text of the object contains all of its signs.
        f"{signs}".encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Trimmed:
    """A renderable without the spaces that rich fills lines up with."""

    inner: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines' segments."""
        # Tables and columns fill up their lines even without padding here.
        for line in console.render_lines(self.inner, options, pad=False):
            while line and not line[-1].text.strip(" "):
                line.pop()
            if line:
                last = line.pop()
                line.append(Segment(last.text.rstrip(" "), last.style))
            yield from line
            yield Segment.line()
