"""Findings in the text report, as a compiler writes them: the worst first, with their code."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from textwrap import wrap

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from gradscope.analysis.report import Report
from gradscope.analysis.view import shown_path, shown_site
from gradscope.recording.evidence.code import SourceRecord
from gradscope.recording.finding import Finding, RelatedLocation, Severity
from gradscope.recording.records import Recording, Site
from gradscope.report.finding_phrasing import (
    consequence_text,
    evidence_text,
    parameter_text,
    unjudged,
    verdict_text,
)
from gradscope.report.page import Page

CONTEXT = 2
"""Lines shown before and after the line that causes a finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A mark below a line."""

    message: str
    """Empty for the line that causes the finding."""
    is_cause: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLine:
    """A line of source code."""

    number: int
    text: str
    labels: tuple[Label, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """Consecutive lines of a file, of which one at least is marked."""

    file: str
    line: int
    """The line it is shown for."""
    function: str
    """Empty where it is not known."""
    lines: tuple[CodeLine, ...]
    """Empty where the source is not known."""
    message: str
    """What happens there, where no line can be marked with it."""


def snippets(finding: Finding, recording: Recording) -> tuple[Snippet, ...]:
    """Return the code that causes a finding, then that of the other lines, in their order.

    A line that lies in the first snippet is marked there.
    """
    first = None if finding.location is None else _cause(finding.location, recording)
    others = []
    for position in finding.related:
        if first is not None and _holds(first, position):
            first = _marked(first, position)
        else:
            others.append(_related(position))
    return (*([] if first is None else [first]), *others)


def _cause(site: Site, recording: Recording) -> Snippet:
    lines = _around(site, recording) or ({site.line: site.source} if site.source else {})
    mark = (Label(message="", is_cause=True),)
    return Snippet(
        file=site.file,
        line=site.line,
        function=_function(site.function),
        lines=tuple(
            CodeLine(number=number, text=text, labels=mark if number == site.line else ())
            for number, text in lines.items()
        ),
        message="",
    )


def _function(name: str) -> str:
    """Return the name of a function as people know it; empty for that of a module."""
    shown = name.rpartition("<locals>.")[2]
    return "" if shown == "<module>" else shown


def _around(site: Site, recording: Recording) -> dict[int, str]:
    """Return the lines around a site without common indentation, empty where they are not known."""
    for record in recording.evidence_of(SourceRecord):
        last = record.first + len(record.lines)
        if record.file == site.file and record.first <= site.line < last:
            start = max(record.first, site.line - CONTEXT)
            end = min(last, site.line + CONTEXT + 1)
            lines = record.lines[start - record.first : end - record.first]
            # The file may have changed between the import and the reading of its lines.
            is_current = lines[site.line - start].strip() == site.source
            return _trimmed(start, lines) if is_current else {}
    return {}


def _trimmed(start: int, lines: tuple[str, ...]) -> dict[int, str]:
    """Return the lines by number, without empty ones at the ends."""
    texts = textwrap.dedent("\n".join(line.expandtabs(4) for line in lines)).split("\n")
    full = [position for position, text in enumerate(texts) if text]
    return (
        {start + position: texts[position] for position in range(full[0], full[-1] + 1)}
        if full
        else {}
    )


def _holds(snippet: Snippet, position: RelatedLocation) -> bool:
    return snippet.file == position.file and position.line in {
        line.number for line in snippet.lines
    }


def _marked(snippet: Snippet, position: RelatedLocation) -> Snippet:
    label = Label(message=position.message, is_cause=False)
    lines = (
        replace(line, labels=(*line.labels, label)) if line.number == position.line else line
        for line in snippet.lines
    )
    return replace(snippet, lines=tuple(lines))


def _related(position: RelatedLocation) -> Snippet:
    label = Label(message=position.message, is_cause=False)
    line = CodeLine(number=position.line, text=position.source, labels=(label,))
    return Snippet(
        file=position.file,
        line=position.line,
        function="",
        lines=(line,) if position.source else (),
        message="" if position.source else position.message,
    )


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
        yield Text("Not applicable", style="bold")
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
        position = f"--> {shown_site(finding.location, page.root)}  "
        room = page.width - _INDENT - cell_len(position)
        source = _cut(page.spell(finding.location.source), room, page)
        yield Text(" " * _INDENT).append(page.spell(position), "dim").append(source)
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
        position = f"{file}:{snippet.line}"
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
