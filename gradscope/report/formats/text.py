"""A document as text on a console, which decides width, colour and characters."""

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from gradscope.report.document import (
    Block,
    Build,
    Document,
    Facts,
    Findings,
    Inner,
    Note,
    Points,
    Section,
    Strips,
    Table,
    Word,
)
from gradscope.report.formats.text_findings import finding_parts
from gradscope.report.formats.text_strips import strips_parts
from gradscope.report.formats.text_tables import text_table
from gradscope.report.formats.text_words import hanging, written
from gradscope.report.page import Page, Trimmed

_INDENT = 2
_NAME = 10
"""Least width of what facts are about."""


def render_text(build: Build, console: Console) -> str:
    """Return the text, without a last line break; nothing is written to the console."""
    page = Page.of(console, "")
    with console.capture() as capture:
        for turn, parts in enumerate(_groups(build(page.width), page)):
            if turn:
                console.print()
            for part in parts:
                console.print(Trimmed(part), end="")
    return capture.get().rstrip("\n")


def _groups(document: Document, page: Page) -> Iterator[list[RenderableType]]:
    """Yield what stands together, between empty lines."""
    title = Text(document.program, "bold cyan", overflow="fold")
    if document.subject:
        title.append(f" {page.spell(document.subject)}", "not cyan bold")
    header = _inside(document.header, page, indent=0)
    if document.program:
        yield [title, *header]
    for block in document.blocks:
        if parts := list(_block(block, page)):
            yield parts
    if closing := list(_inside(document.closing, page, indent=0)):
        yield closing


def _block(block: Block, page: Page) -> Iterator[RenderableType]:
    if not isinstance(block, Section):
        yield from _parts(block, page, indent=0)
        return
    if block.title:
        yield _title(block.title, written(block.note, page), page)
    yield from _inside(block.blocks, page, indent=_INDENT if block.title else 0)


def _title(title: str, note: Text, page: Page) -> Text:
    text = Text(page.spell(title), "bold")
    if note:
        text.append("  ").append_text(note)
        text.stylize("not bold dim", len(text) - len(note))
    return hanging(text, page.width, further=_INDENT)


def _inside(blocks: Sequence[Inner], page: Page, indent: int) -> Iterator[RenderableType]:
    """Yield the parts of some blocks, with an empty line between a list or table and a table."""
    before: Inner | None = None
    for block in blocks:
        if isinstance(before, Points | Table) and isinstance(block, Table):
            yield Text()
        yield from _parts(block, page, indent)
        before = block


def _parts(block: Inner, page: Page, indent: int) -> Iterator[RenderableType]:
    match block:
        case Facts():
            yield _facts(block, page, indent)
        case Note(line, hint):
            text = written(line, page)
            text.append(page.spell(f" {hint}") if hint else "", "dim")
            yield hanging(text, page.width, indent=indent)
        case Points(lines):
            shown = (written(line, page) for line in lines)
            yield from (hanging(text, page.width, indent=2, further=2) for text in shown)
        case Findings():
            yield from _findings(block, page)
        case Strips():
            yield from strips_parts(block, page)
        case Table():
            margin = 2 * indent if block.is_plain else 0
            yield Padding(text_table(block, page, page.width - margin), (0, 0, 0, margin))


def _facts(facts: Facts, page: Page, indent: int) -> Grid:
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, min_width=_NAME + indent)
    grid.add_column(overflow="fold")
    for fact in facts.rows:
        name = written((" " * indent, Word(fact.name, fact.mark)), page)
        grid.add_row(name, written(fact.line, page))
    return grid


def _findings(findings: Findings, page: Page) -> Iterator[RenderableType]:
    if findings.title:
        yield _title(findings.title, written(findings.note, page), page)
    is_close = True
    for one in findings.found:
        # A finding with its code stands between empty lines.
        if not (is_close and one.is_brief) and one is not findings.found[0]:
            yield Text()
        yield from finding_parts(one, page)
        is_close = one.is_brief
    for line in findings.more:
        yield hanging(written(line, page), page.width, indent=_INDENT)
    if findings.verdict:
        if findings.found:
            yield Text()
        yield written(findings.verdict, page)
