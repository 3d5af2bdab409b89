"""Lines and tables of a document in the style and the characters of a page."""

import math
import re
from collections.abc import Sequence
from textwrap import TextWrapper

from rich.cells import cell_len
from rich.table import Table as Grid
from rich.text import Text

from gradscope.analysis.folding import Span
from gradscope.report.document import (
    Column,
    Line,
    Location,
    Mark,
    Share,
    Table,
    TreeLabel,
    Value,
    Word,
)
from gradscope.report.number_format import value_text
from gradscope.report.page import Page
from gradscope.report.strips import BAR, LogScale, axis, bar

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

_GAP = 2

_LEAST_NAME = 24

_LEAST_BAR, _MOST_BAR = 8, 32

_PLACE, _BESIDE = 44, 60
"""Columns for `file:line`, and for both it and its code."""


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


def text_table(table: Table, page: Page, width: int) -> Grid:
    """Return a table in this number of columns of a page."""
    return _Fitting(table, page, width).grid()


class _Fitting:
    """A table, and which of its columns fit into a width."""

    def __init__(self, table: Table, page: Page, width: int) -> None:
        self._table, self._page, self._width = table, page, width
        filled = table.filled
        self._natural = {
            position: max(0 if table.is_plain else len(table.columns[position].title), *(
                self._cell(row[position], table.columns[position], width).cell_len
                for row in table.rows
            ))
            for position in filled
        }  # fmt: skip
        self._kept = list(filled)
        while self._taken() > width and (least := self._least_needed()) is not None:
            self._kept.remove(least)
        self._below = [
            position
            for position in filled
            if position not in self._kept and table.columns[position].is_below
        ]
        bars = [at for at in self._kept if "bar" in self._kind(at)]
        flexible = [at for at in self._kept if at in bars or self._kind(at) == "name"]
        # Words beside a name are folded before it is: they may take two fifths of the page.
        room = width - sum(self._fixed(at) + _GAP for at in self._kept if at not in flexible)
        room -= _GAP * (len(flexible) - 1)
        share = room // 4 if len(flexible) > len(bars) else room // max(len(bars), 1)
        self._bar = min(max(share, _LEAST_BAR), _MOST_BAR)
        self._name = room - self._bar * len(bars)

    def _kind(self, position: int) -> str:
        return self._table.columns[position].kind

    def _fixed(self, position: int) -> int:
        natural = self._natural[position]
        is_words = self._kind(position) == "words"
        return min(natural, 2 * self._width // 5) if is_words else natural

    def _name_beside_words(self, position: int) -> int | None:
        """Return the width of a name beside words that are folded; None for another column."""
        is_pressed = any(self._fixed(at) < self._natural[at] for at in self._kept)
        is_name = self._kind(position) == "name"
        return min(self._natural[position], self._name) if is_name and is_pressed else None

    def _taken(self) -> int:
        """Return the minimum width of the shown columns."""
        return sum(self._least(position) + _GAP for position in self._kept) - _GAP

    def _least(self, position: int) -> int:
        column, natural = self._table.columns[position], self._natural[position]
        if "bar" in column.kind:
            return _LEAST_BAR
        if column.kind == "name" and not any(self._table.columns[at].is_below for at in self._kept):
            return min(natural, _LEAST_NAME)
        return min(natural, _BESIDE) if column.is_below else natural

    def _least_needed(self) -> int | None:
        ranked = [at for at in self._kept if self._table.columns[at].rank]
        # Of equal ranks, the column on the right goes first.
        return max(ranked, key=lambda at: (self._table.columns[at].rank, at), default=None)

    def grid(self) -> Grid:
        """Return the table of the columns that fit."""
        grid = Grid(
            box=None,
            pad_edge=False,
            padding=(0, _GAP, 0, 0),
            header_style="dim",
            show_header=not self._table.is_plain,
        )
        for at in self._kept:
            column = self._table.columns[at]
            is_folded = column.kind in ("name", "words")
            grid.add_column(
                column.title,
                justify="right" if column.kind == "number" else "left",
                no_wrap=not is_folded,
                overflow="fold",
                width=self._bar if "bar" in column.kind else self._name_beside_words(at),
            )
        scales = {at: self._scale(at) for at in self._kept}
        for row in self._table.rows:
            grid.add_row(*(self._shown(row, at, scales[at]) for at in self._kept))
        for turn in range(2):
            marks = {at: axis(scale, self._page.signs) for at, scale in scales.items() if scale}
            if marks:
                grid.add_row(*(marks[at][turn] if at in marks else "" for at in self._kept))
        return grid

    def _scale(self, position: int) -> LogScale | None:
        if self._kind(position) != "logarithmic bar":
            return None
        cells = [row[position] for row in self._table.rows]
        return LogScale.over([one for one in cells if isinstance(one, Span)], self._bar)

    def _shown(self, row: Sequence[Value], position: int, scale: LogScale | None) -> Text:
        value, column = row[position], self._table.columns[position]
        if scale is not None:
            return bar(value if isinstance(value, Span) else None, scale, self._page.signs)
        if column.kind == "bar":
            return linear_bar(value if isinstance(value, float) else 0.0, self._bar, self._page)
        width = self._name if column.kind == "name" else min(self._width // 3, _PLACE)
        if column.is_below:
            width = max(self._natural[position], _BESIDE)
        text = self._cell(value, column, width)
        if column.kind == "name":
            for below in self._below:
                text.append("\n").append_text(
                    self._cell(row[below], self._table.columns[below], width)
                )
        return text

    def _cell(self, value: Value, column: Column, width: int) -> Text:
        page = self._page
        match value:
            case TreeLabel():
                return tree_label(value, width, page)
            case Location():
                return _location(value, width, page)
            case Word() if column.kind == "name":
                return page.path(value.text, width, STYLES[value.mark])
            case str() | tuple():
                return written(value, page, width)
            case None | float() | int() | Share() | Span():
                text = page.spell(value_text(value))
                return Text(text, _style(value))
            case _:
                return written(value, page, width)


def _style(value: float | Share | Span | None) -> str:
    if value is None:
        return "dim"
    high = value.high if isinstance(value, Span) else value
    return "bold red" if isinstance(high, float) and not math.isfinite(high) else ""


def _location(location: Location, width: int, page: Page) -> Text:
    text = page.location(location.location, min(width, _PLACE))
    if location.source:
        room = max(width - text.cell_len - _GAP, 0)
        source = page.spell(location.source)
        if len(source) > room:
            source = cut(source, room, page) if room >= 12 else ""
        text.append(f"  {source}", style="dim")
    return text


def linear_bar(share: float, width: int, page: Page) -> Text:
    """Return a bar of a share of the width; never empty for a share above zero."""
    steps = len(page.signs.parts)
    eighths = max(round(share * width * steps), 1 if share > 0 else 0)
    whole, part = divmod(eighths, steps)
    return Text(page.signs.full * whole + (page.signs.parts[part] if part else ""), style=BAR)


def tree_label(label: TreeLabel, width: int, page: Page) -> Text:
    """Return a module's name, number of copies and class, in a column of this width."""
    class_name = page.spell(label.class_name)
    # Long names get at least half of the column.
    indent = min(2 * label.level, width // 2)
    if not label.name:
        return Text(class_name, style="bold", overflow="fold")
    text = page.path(label.name, width - indent, indent=indent)
    if label.copies > 1:
        text.append(f" {page.signs.times}{label.copies}", style="bold")
    if label.calls > 1:
        text.append(f" ({label.calls} calls)")
    if label.name == label.class_name:
        return text
    room = width - len(text) - 1
    if len(class_name) <= room:
        text.append(f" {class_name}", style="dim")
    elif room >= 8:
        # The ellipsis of ASCII has three dots, for which there is no room.
        text.append(f" {class_name[: room - 1]}{page.signs.ellipsis[0]}", style="dim")
    return text
