"""The lines of code that a finding shows, and the marks below them."""

import textwrap
from dataclasses import replace

from gradscope.frozen import dataclass
from gradscope.recording.evidence.training import SourceRecord
from gradscope.recording.finding import Finding, RelatedLocation
from gradscope.recording.records import Recording, Site

CONTEXT = 2
"""Number of lines shown before and after the line that causes a finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A mark below a line."""

    message: str
    """Message for the line; empty for the line that causes the finding."""
    is_cause: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLine:
    """A line of source code."""

    number: int
    text: str
    labels: tuple[Label, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """Consecutive lines of a file, of which at least one is marked."""

    file: str
    line: int
    """Number of the line that the excerpt is about."""
    function: str
    """Function of the line; empty if unknown."""
    lines: tuple[CodeLine, ...]
    """Lines of the excerpt; empty if the source is unknown."""
    message: str
    """Message for the location, if no line of code can be marked with it."""


def snippets(finding: Finding, recording: Recording) -> tuple[Snippet, ...]:
    """Return the code of the cause of a finding, then that of the other lines, in their order.

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


def column_of(site: Site | None, recording: Recording) -> int:
    """Return the column at which the code of a line begins, from 1; 1 where it is not known."""
    found = None if site is None else _source_of(site, recording)
    if site is None or found is None:
        return 1
    line = found.lines[site.line - found.first]
    return 1 + len(line) - len(line.lstrip()) if line.strip() == site.source else 1


def _source_of(site: Site, recording: Recording) -> SourceRecord | None:
    """Return the recorded lines that a site lies in."""
    for record in recording.evidence_of(SourceRecord):
        if record.file == site.file and record.first <= site.line < record.first + len(
            record.lines
        ):
            return record
    return None


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
    """Return the name of a function for people; empty for that of a module."""
    shown = name.rpartition("<locals>.")[2]
    return "" if shown == "<module>" else shown


def _around(site: Site, recording: Recording) -> dict[int, str]:
    """Return the lines around a site without common indentation, empty where they are not known."""
    record = _source_of(site, recording)
    if record is None:
        return {}
    start = max(record.first, site.line - CONTEXT)
    end = site.line + CONTEXT + 1
    lines = record.lines[start - record.first : end - record.first]
    # The file may have changed between the import and the reading of its lines.
    is_current = lines[site.line - start].strip() == site.source
    return _trimmed(start, lines) if is_current else {}


def _trimmed(start: int, lines: tuple[str, ...]) -> dict[int, str]:
    """Return the lines by number, without empty ones at the ends."""
    # Lines indented by tabs and by spaces have no common start that could be removed.
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
