"""The configuration as `gradscope config` shows it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import PurePath
from typing import Literal, assert_never

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradscope.config import Configuration, keys
from gradscope.config.document import TABLE, dotted
from gradscope.config.listing import Entry
from gradscope.options.checks import Value
from gradscope.report.json.shape import SCHEMA_VERSION, Count, Object, Shape, indented
from gradscope.report.page import Page, Trimmed

ConfigurationFormat = Literal["text", "json"]

_WIDEST = 100
_MARGIN, _GAP = 2, 2
_NARROW = 60
"""Width in columns below which file and line are shown below the value."""
_NAMES, _PLACES = 24, 24
"""Maximum width in characters of a key, and of file and line, before they are folded or shortened.
"""
_GROUPS: tuple[tuple[str, Mapping[str, keys.Key]], ...] = (
    ("rules to run", keys.SELECTION),
    ("when a check fails", keys.CHECK),
    ("how targets run", keys.RUNNING),
)


def render_configuration(
    configuration: Configuration,
    entries: Iterable[Entry],
    output_format: ConfigurationFormat,
    console: Console,
) -> str:
    """Return what holds, without a last line break."""
    match output_format:
        case "text":
            page = Page.of(console, "")
            with console.capture() as capture:
                for part in _parts(configuration, tuple(entries), page):
                    console.print(Trimmed(part), end="", width=min(page.width, _WIDEST))
            return capture.get().rstrip("\n")
        case "json":
            return indented(_object(configuration, entries))
    assert_never(output_format)


class _Source(Shape):
    """The line of a file that sets a key."""

    file: str
    line: Count


class _Entry(Shape):
    """A key and its value."""

    key: str
    value: object
    default: object
    source: _Source | None
    is_inherited: bool


def _object(configuration: Configuration, entries: Iterable[Entry]) -> Object:
    return {
        "schema_version": SCHEMA_VERSION,
        "file": None if configuration.file is None else str(configuration.file),
        "folder": str(configuration.folder),
        "keys": [_Entry.write(entry) for entry in entries],
    }


def _parts(
    configuration: Configuration, entries: tuple[Entry, ...], page: Page
) -> Iterator[RenderableType]:
    if configuration.file is None:
        yield Text("no pyproject.toml has [tool.gradscope]: the defaults apply", style="dim")
    else:
        yield page.text(str(configuration.file))
    for (table, about), members in groupby(entries, key=_heading):
        yield Text()
        heading = Text(f"[{page.spell(table)}]", style="bold cyan", overflow="fold")
        yield heading.append(f"  {about}" if about else "", style="not bold dim")
        yield Padding(_grid(tuple(members), entries, page), (0, 0, 0, 2))
    if not entries:
        yield Text()
        yield Text("nothing is set", style="dim")


def _grid(rows: tuple[Entry, ...], entries: tuple[Entry, ...], page: Page) -> Table:
    """Return rows in columns that are as wide in the tables of all entries."""
    width = min(page.width, _WIDEST) - _MARGIN
    names = min(max(len(_name(entry)) for entry in entries), _NAMES, width // 3)
    values = max(_value(entry, page).cell_len for entry in entries)
    positions = max(len(_position(entry, page)) for entry in entries)
    is_narrow = page.width < _NARROW
    taken = names + _GAP if is_narrow else names + positions + 2 * _GAP
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    grid.add_column(width=names, overflow="fold")
    grid.add_column(width=max(min(values, width - taken), 1), overflow="fold")
    for entry in rows:
        name, value = page.text(_name(entry)), _value(entry, page)
        position = Text(_position(entry, page), "" if entry.is_set else "dim", overflow="fold")
        if is_narrow:
            grid.add_row(name, value.append("\n").append_text(position))
        else:
            grid.add_row(name, value, position)
    return grid


def _heading(entry: Entry) -> tuple[str, str]:
    """Return the table that contains a key, and the subject of the key's group."""
    about = [title for title, group in _GROUPS if entry.key in group]
    return dotted((*TABLE, *entry.path[:-1])), about[0] if about else ""


def _name(entry: Entry) -> str:
    return dotted(entry.path[-1:])


def _position(entry: Entry, page: Page) -> str:
    """Return file and line, the file without the folder that is printed above."""
    if entry.source is None:
        return "default"
    position = str(replace(entry.source, file=PurePath(entry.source.file).name))
    return page.shorten(page.spell(position), _PLACES)


def _value(entry: Entry, page: Page) -> Text:
    shown = page.text(_spelt(entry.value, page), "bold" if entry.is_set else "dim")
    if entry.is_set and entry.default not in (None, ()):
        shown.append(f" (default {page.spell(_spelt(entry.default, page))})", style="not bold dim")
    return shown


def _spelt(value: Value | None, page: Page) -> str:
    match value:
        case None | ():
            return page.signs.dash
        case bool():
            # As TOML writes it.
            return str(value).lower()
        case tuple():
            return ", ".join(item or '""' for item in value)
        case _:
            return str(value)
