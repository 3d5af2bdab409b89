"""A document as text on a console, which decides width, colour and characters."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.table import Table as Grid
from rich.text import Text

from gradscope.analysis.view import line_text
from gradscope.report.document import (
    Block,
    Build,
    Document,
    Facts,
    FindingBlock,
    Findings,
    Inner,
    Note,
    Points,
    Section,
    Strip,
    Strips,
    Table,
    TreeLabel,
    Word,
    plain,
)
from gradscope.report.formats.text_lines import (
    STYLES,
    cut,
    hanging,
    text_table,
    tree_label,
    written,
)
from gradscope.report.page import Page, Trimmed
from gradscope.report.snippets import CodeLine, Label, Snippet
from gradscope.report.strips import BROKEN, ZERO, strip

_RELATED_STYLE = "bold blue"

_INDENT = 2


def finding_parts(finding: FindingBlock, page: Page) -> Iterator[RenderableType]:
    """Yield a finding's title, code, numbers and remedy; a note in fewer lines."""
    if finding.is_brief:
        yield _line(finding, page)
        return
    if finding.standing:
        yield written(Word(f"{finding.standing}:", "notable"), page)
    is_note = finding.severity == "note"
    text = hanging(_finding_title(finding, page), page.width, further=2 * _INDENT)
    yield text
    yield from (_location if is_note else _code)(finding, page)
    for fact in finding.details:
        # Notes are shortened.
        if not is_note or fact.name not in ("measured", "explains"):
            yield _detail(fact.name, "dim", fact.text, page)
    yield _detail("help", "bold green", finding.remedy, page)


def _finding_title(finding: FindingBlock, page: Page) -> Text:
    label = f"{finding.severity}[{finding.rule}]"
    text = Text(label, STYLES[finding.severity]).append(f" {finding.name}:", "bold")
    return text.append(page.spell(f" {finding.message}"), "not bold default")


def _line(finding: FindingBlock, page: Page) -> Text:
    """Return a finding in one line, which is folded if it is too long."""
    head = Text(page.spell(f"{finding.standing}: ") if finding.standing else "", "dim")
    text = head.append_text(_finding_title(finding, page))
    if finding.location:
        text.append(" (").append(page.spell(finding.location), page.link(finding.location))
        text.append(")")
    return hanging(text, page.width, indent=_INDENT, further=2 * _INDENT)


def _location(finding: FindingBlock, page: Page) -> Iterator[Text]:
    if finding.location:
        position = Text("--> ", "dim")
        position.append(page.spell(finding.location), page.link(finding.location)).append("  ")
        source = cut(page.spell(finding.source), page.width - _INDENT - position.cell_len, page)
        yield Text(" " * _INDENT).append_text(position).append(source)


def _code(finding: FindingBlock, page: Page) -> Iterator[Text]:
    numbers = [line.number for snippet in finding.snippets for line in snippet.lines]
    frame = _Frame(page, len(str(max(numbers, default=0))), STYLES[finding.severity])
    for snippet in finding.snippets:
        yield from frame.show(snippet)


def _detail(name: str, style: str, words: str, page: Page) -> Text:
    text = Text(f"{name}:", style).append(page.spell(f" {words}"), "not bold not dim default")
    return hanging(text, page.width, indent=_INDENT, further=_INDENT)


class _Frame:
    """Shows the snippets of one finding, with aligned line numbers."""

    def __init__(self, page: Page, digits: int, style: str) -> None:
        self._page, self._digits, self._style = page, digits, style

    def show(self, snippet: Snippet) -> Iterator[Text]:
        """Yield a snippet's location on a line of its own, then its lines."""
        position = self._position(snippet)
        inside = f" in {self._page.spell(snippet.function)}" if snippet.function else ""
        margin = " " * self._digits
        message = self._page.spell(f": {snippet.message}") if snippet.message else ""
        text = Text(f"{margin}--> ", "dim", overflow="fold")
        link = self._page.link(f"{snippet.file}:{snippet.line}")
        yield text.append(position, Style.parse("not dim") + link).append(
            inside + message, "not dim"
        )
        if snippet.lines:
            yield self._gutter("")
        for line in snippet.lines:
            yield from self._line(line)

    def _position(self, snippet: Snippet) -> str:
        """Return `file:line`; of a long path, the end that fits in the line."""
        position = line_text(self._page.spell(snippet.file), snippet.line)
        room = self._page.width - self._digits - len("--> ")
        if len(position) <= room:
            return position
        return self._page.location(f"{snippet.file}:{snippet.line}", room).plain

    def _gutter(self, number: str) -> Text:
        bar = f"{number:>{self._digits}} {self._page.signs.bar} "
        return Text(bar, "dim", overflow="fold")

    @property
    def _room(self) -> int:
        return self._page.width - self._digits - 3

    def _line(self, line: CodeLine) -> Iterator[Text]:
        code = cut(self._page.spell(line.text), self._room, self._page)
        style = "not dim" if line.labels else "dim"
        yield self._gutter(str(line.number)).append(code, style)
        indent = len(code) - len(code.lstrip())
        for label in line.labels:
            # Wide characters take two columns.
            yield from self._label(label, indent, cell_len(code) - indent)

    def _label(self, label: Label, indent: int, length: int) -> Iterator[Text]:
        """Yield a line below the code, with the message after it, or below it if it is too long."""
        mark, style = ("^", self._style) if label.is_cause else ("-", _RELATED_STYLE)
        underline = self._gutter("").append(" " * indent).append(mark * length, f"not dim {style}")
        message = self._page.spell(label.message)
        if indent + length + 1 + cell_len(message) <= self._room:
            yield underline.append(f" {message}".rstrip(), f"not dim {style}")
            return
        yield underline
        # Code that is indented deeply leaves some room for words.
        for part in wrap(message, max(self._room - indent, 20), break_on_hyphens=False):
            yield self._gutter("").append(" " * indent).append(part, f"not dim {style}")


_GAP = 2

_STYLES = {BROKEN: "bold red", ZERO: "magenta"}


def strips_parts(strips: Strips, page: Page) -> Iterator[RenderableType]:
    """Yield a line per strip with the steps below, then the columns that a narrow page omits."""
    yield _grid(strips, page)
    if not strips.layout.extreme:
        parts = [
            f"{' '.join(plain(one.label).split())} {one.extreme}"
            for one in strips.strips
            if one.extreme and not isinstance(one.label, TreeLabel)
        ]
        if parts:
            text = Text(page.spell("; ".join(parts)))
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


_NAME = 10
"""Minimum width of the subjects of facts."""


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
    """Yield blocks that belong together, separated by empty lines."""
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
        # A finding with its code is surrounded by empty lines.
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
