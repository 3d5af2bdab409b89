"""Findings in the text report: as a compiler writes them, the worst first."""

from collections.abc import Iterator
from textwrap import wrap

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from gradscope.analysis.report import Report
from gradscope.analysis.view import shown_path, shown_site
from gradscope.recording.finding import Finding, Severity
from gradscope.report.finding_words import (
    consequence_text,
    evidence_text,
    parameter_text,
    unjudged,
    verdict_text,
)
from gradscope.report.page import Page
from gradscope.report.snippets import CodeLine, Label, Snippet, snippets

SEVERITY_STYLES: dict[Severity, str] = {
    "error": "bold red",
    "warning": "bold magenta",
    "note": "bold cyan",
}
_RELATED_STYLE = "bold blue"
_INDENT = 2
_REASONS_SHOWN = 8


def findings_section(report: Report, page: Page) -> Iterator[RenderableType]:
    """Yield every finding with its code, a line apart, and how many there are."""
    for finding in report.findings:
        yield from finding_parts(finding, report, page)
        yield Text()
    if text := verdict_text(report):
        head, colon, tail = text.partition(":")
        worst = report.findings[0].severity if report.findings else None
        style = SEVERITY_STYLES[worst] if worst else "bold green" if report.rules.ran else "bold"
        yield Text(head, style=style).append(colon + tail, style="not bold default dim")


def finding_parts(finding: Finding, report: Report, page: Page) -> Iterator[RenderableType]:
    """Yield a finding's title, code, numbers and remedy; a note in fewer lines."""
    is_note = finding.severity == "note"
    yield from (_note if is_note else _finding)(finding, report, page)


def unjudged_section(report: Report, page: Page) -> Iterator[RenderableType]:
    """Yield the rules that could not run, by the reason."""
    reasons = unjudged(report.rules.skipped)
    if reasons:
        yield Text("Not judged", style="bold")
    for codes, reason in reasons[:_REASONS_SHOWN]:
        yield hanging(page.spell(f"{codes}: {reason}"), page, indent=_INDENT)
    if (more := len(reasons) - _REASONS_SHOWN) > 0:
        yield Text(f"  {page.signs.ellipsis} {more:,} more: --output-format json", style="dim")


def _finding(finding: Finding, report: Report, page: Page) -> Iterator[RenderableType]:
    yield _title(finding, page)
    shown = snippets(finding, report.recording)
    numbers = [line.number for snippet in shown for line in snippet.lines]
    frame = _Frame(page, len(str(max(numbers, default=0))), SEVERITY_STYLES[finding.severity])
    for snippet in shown:
        yield from frame.show(snippet)
    for name, text in (
        ("parameters", parameter_text(finding, report)),
        ("measured", evidence_text(finding, page.signs)),
        ("explains", consequence_text(finding)),
    ):
        if text:
            yield detail(name, text, page)
    yield _help(finding, page)


def _note(finding: Finding, report: Report, page: Page) -> Iterator[RenderableType]:
    yield _title(finding, page)
    if finding.location is not None:
        place = f"--> {shown_site(finding.location, page.root)}  "
        room = page.width - _INDENT - cell_len(place)
        source = _cut(page.spell(finding.location.source), room, page)
        yield Text(" " * _INDENT).append(page.spell(place), "dim").append(source)
    if text := parameter_text(finding, report):
        yield detail("parameters", text, page)
    yield _help(finding, page)


def _title(finding: Finding, page: Page) -> Text:
    label = f"{finding.severity}[{finding.rule}]"
    head = f"{label} {finding.name}:"
    text = hanging(page.spell(f"{head} {finding.message}"), page, further=2 * _INDENT)
    text.stylize("bold", 0, len(head))
    text.stylize(SEVERITY_STYLES[finding.severity], 0, len(label))
    return text


def detail(name: str, words: str, page: Page) -> Text:
    """Return a line below a finding that begins with what it tells of."""
    text = hanging(page.spell(f"{name}: {words}"), page, indent=_INDENT, further=_INDENT)
    text.stylize("dim", _INDENT, _INDENT + len(name) + 1)
    return text


def _help(finding: Finding, page: Page) -> Text:
    text = hanging(page.spell(f"help: {finding.remedy}"), page, indent=_INDENT, further=_INDENT)
    text.stylize("bold green", _INDENT, _INDENT + len("help:"))
    return text


def hanging(text: str, page: Page, *, indent: int = 0, further: int = 0) -> Text:
    """Return text in lines that begin after `indent` spaces, all but the first after `further`."""
    lines = wrap(
        text,
        page.width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + further),
        break_on_hyphens=False,
    )
    return Text("\n".join(lines), overflow="fold")


def _cut(text: str, width: int, page: Page) -> str:
    """Return text in so many columns, without its end where it is longer."""
    if cell_len(text) <= width:
        return text
    room = max(width - len(page.signs.ellipsis), 1)
    shown = Text(text)
    shown.truncate(room)
    return shown.plain.rstrip() + page.signs.ellipsis


class _Frame:
    """Shows the snippets of one finding, their line numbers below each other."""

    def __init__(self, page: Page, digits: int, style: str) -> None:
        self._page, self._digits, self._style = page, digits, style

    def show(self, snippet: Snippet) -> Iterator[Text]:
        """Yield a snippet's lines, after its place in a line of its own."""
        file = self._page.spell(shown_path(snippet.file, self._page.root))
        place = f"{file}:{snippet.line}"
        inside = f" in {self._page.spell(snippet.function)}" if snippet.function else ""
        margin = " " * self._digits
        message = self._page.spell(f": {snippet.message}") if snippet.message else ""
        text = Text(f"{margin}--> ", "dim", overflow="fold")
        yield text.append(place + inside + message, "not dim")
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
        code = _cut(self._page.spell(line.text), self._room, self._page)
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
