"""Findings in text, as a compiler writes them: with their code."""

from collections.abc import Iterator
from textwrap import wrap

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from gradscope.report.document import FindingBlock, Word
from gradscope.report.formats.text_words import STYLES, cut, hanging, written
from gradscope.report.page import Page
from gradscope.report.snippets import CodeLine, Label, Snippet

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
    text = hanging(_title(finding, page), page.width, further=2 * _INDENT)
    yield text
    yield from (_place if is_note else _code)(finding, page)
    for fact in finding.details:
        # A note is told in short.
        if not is_note or fact.name not in ("measured", "explains"):
            yield _detail(fact.name, "dim", fact.text, page)
    yield _detail("help", "bold green", finding.remedy, page)


def _title(finding: FindingBlock, page: Page) -> Text:
    label = f"{finding.severity}[{finding.rule}]"
    text = Text(label, STYLES[finding.severity]).append(f" {finding.name}:", "bold")
    return text.append(page.spell(f" {finding.message}"), "not bold default")


def _line(finding: FindingBlock, page: Page) -> Text:
    """Return a finding in a line, which is folded where it is too long."""
    head = Text(page.spell(f"{finding.standing}: ") if finding.standing else "", "dim")
    text = head.append_text(_title(finding, page))
    if finding.location:
        text.append(page.spell(f" ({finding.location})"))
    return hanging(text, page.width, indent=_INDENT, further=2 * _INDENT)


def _place(finding: FindingBlock, page: Page) -> Iterator[Text]:
    if finding.location:
        position = page.spell(f"--> {finding.location}  ")
        source = cut(page.spell(finding.source), page.width - _INDENT - cell_len(position), page)
        yield Text(" " * _INDENT).append(position, "dim").append(source)


def _code(finding: FindingBlock, page: Page) -> Iterator[Text]:
    numbers = [line.number for snippet in finding.snippets for line in snippet.lines]
    frame = _Frame(page, len(str(max(numbers, default=0))), STYLES[finding.severity])
    for snippet in finding.snippets:
        yield from frame.show(snippet)


def _detail(name: str, style: str, words: str, page: Page) -> Text:
    text = Text(f"{name}:", style).append(page.spell(f" {words}"), "not bold not dim default")
    return hanging(text, page.width, indent=_INDENT, further=_INDENT)


class _Frame:
    """Shows the snippets of one finding, their line numbers below each other."""

    def __init__(self, page: Page, digits: int, style: str) -> None:
        self._page, self._digits, self._style = page, digits, style

    def show(self, snippet: Snippet) -> Iterator[Text]:
        """Yield a snippet's lines, after its place in a line of its own."""
        position = f"{self._page.spell(snippet.file)}:{snippet.line}"
        inside = f" in {self._page.spell(snippet.function)}" if snippet.function else ""
        margin = " " * self._digits
        message = self._page.spell(f": {snippet.message}") if snippet.message else ""
        text = Text(f"{margin}--> ", "dim", overflow="fold")
        yield text.append(position + inside + message, "not dim")
        if snippet.lines:
            yield self._gutter("")
        for line in snippet.lines:
            yield from self._line(line)

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
            yield from self._label(label, indent, cell_len(code) - indent)

    def _label(self, label: Label, indent: int, length: int) -> Iterator[Text]:
        """Yield a line below the code, and the message after it or below where it is too long."""
        mark, style = ("^", self._style) if label.is_cause else ("-", _RELATED_STYLE)
        underline = self._gutter("").append(" " * indent).append(mark * length, f"not dim {style}")
        message = self._page.spell(label.message)
        if indent + length + 1 + cell_len(message) <= self._room:
            yield underline.append(f" {message}".rstrip(), f"not dim {style}")
            return
        yield underline
        for part in wrap(message, max(self._room - indent, 20), break_on_hyphens=False):
            yield self._gutter("").append(" " * indent).append(part, f"not dim {style}")
