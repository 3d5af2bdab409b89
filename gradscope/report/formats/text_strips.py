"""Strips below each other in text, with the steps they begin and end at."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text

from gradscope.report.document import Strip, Strips, TreeLabel, plain
from gradscope.report.formats.text_tables import tree_label
from gradscope.report.formats.text_words import hanging, written
from gradscope.report.page import Page
from gradscope.report.strips import BROKEN, ZERO, strip

_GAP = 2
_STYLES = {BROKEN: "bold red", ZERO: "magenta"}


def strips_parts(strips: Strips, page: Page) -> Iterator[RenderableType]:
    """Yield a line a strip with the steps below, then what a narrow page has no column for."""
    yield _grid(strips, page)
    if not strips.layout.extreme:
        words = [
            f"{' '.join(plain(one.label).split())} {one.extreme}"
            for one in strips.strips
            if one.extreme and not isinstance(one.label, TreeLabel)
        ]
        if words:
            text = Text(page.spell("; ".join(words)))
            yield hanging(text, page.width, indent=_GAP, further=_GAP)


def _grid(strips: Strips, page: Page) -> Grid:
    layout = strips.layout
    count = max((len(one.cells) for one in strips.strips), default=0)
    grid = Grid.grid(padding=(0, _GAP, 0, 0))
    grid.add_column(width=layout.label, overflow="fold")
    grid.add_column(width=count, no_wrap=True)
    grid.add_column(width=layout.course, overflow="fold")
    if layout.extreme:
        grid.add_column(width=layout.extreme, style="dim")
    for one in strips.strips:
        extreme = [Text(page.spell(one.extreme))] if layout.extreme else []
        label = (
            tree_label(one.label, layout.label, page)
            if isinstance(one.label, TreeLabel)
            else written(one.label, page)
        )
        grid.add_row(label, _drawn(one, page), Text(page.spell(one.course)), *extreme)
    first, last = f"{strips.first:,}", f"{strips.last:,}"
    gap = count - len(first) - len(last)
    if strips.has_axis and gap > 0:
        grid.add_row("", Text(f"{first}{' ' * gap}{last}", style="dim"), "")
    return grid


def _drawn(one: Strip, page: Page) -> Text:
    text = Text()
    for sign in strip(one.cells, one.scale, page.signs):
        text.append(sign, _STYLES.get(sign, "yellow" if one.is_other else "cyan"))
    return text
