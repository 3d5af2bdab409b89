"""Lays out a help page. The module imports rich, which only help pages need."""

from collections.abc import Iterable, Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradscope.report.page import Trimmed

_WIDEST = 100
"""Columns of a page at most: longer lines are hard to read."""
_NAMES = 26
"""Columns for names; the text of a longer name begins on the next line."""

Rows = tuple[str, list[tuple[str, str]]]
"""Title of a group, and its names with their texts."""


def show_page(
    console: Console, text: str, usage: str, groups: Iterable[Rows], examples: Iterable[str]
) -> None:
    """Print a help page.

    Args:
        console: Where it goes.
        text: What the command does, in paragraphs.
        usage: The command line in short.
        groups: Options and arguments.
        examples: Command lines.
    """
    page = Group(*_page(text, usage, groups, examples))
    console.print(page, width=min(console.width, _WIDEST))


def _page(
    text: str, usage: str, groups: Iterable[Rows], examples: Iterable[str]
) -> Iterator[RenderableType]:
    for paragraph in text.split("\n\n"):
        yield Trimmed(Text(" ".join(paragraph.split()) + "\n"))
    yield Text.assemble(("Usage: ", "bold"), usage)
    for title, rows in groups:
        yield Text(f"\n{title}", "bold")
        yield from (line for names, told in rows for line in _lines(names, told))
    yield Text("\nExamples", "bold")
    yield from (Text(f"  {line}", overflow="fold") for line in examples)


def _lines(names: str, told: str) -> Iterator[RenderableType]:
    """Yield names and text side by side, or one below the other."""
    styled = Text(names, "cyan")
    if len(names) > _NAMES:
        yield Trimmed(Padding(styled, (0, 0, 0, 2)))
        styled = Text()
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=_NAMES, no_wrap=True)
    grid.add_column()
    grid.add_row(styled, Text(told))
    yield Trimmed(Padding(grid, (0, 0, 0, 2)))
