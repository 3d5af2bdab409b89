"""A document in single lines that begin with `file:line:column:`, for editors, grep and agents."""

from collections.abc import Iterable, Iterator

from gradscope.phrasing import printable
from gradscope.report.document import (
    Document,
    Fact,
    Facts,
    FindingBlock,
    Findings,
    Inner,
    Note,
    Points,
    Section,
    Strips,
    Table,
    Word,
    brief,
    findings_in,
    plain,
)
from gradscope.report.finding_phrasing import fix_lines
from gradscope.report.page import in_ascii

_SAID = ("measured", "explains")
"""Details that a line has no room for."""


def render_concise(document: Document, details: Iterable[str] | None = None) -> str:
    """Return a line a finding, then details, what it comes to, and the command to run next.

    Args:
        document: What is reported.
        details: Further lines of this kind of report; None for those of the document.
    """
    others = _others(document) if details is None else details
    conclusion = (line for block in brief(document).closing for line in _lines(block))
    lines = [*concise_findings(document), *others, *conclusion]
    if document.next_command:
        lines.append(f"next: {document.next_command}")
    return "\n".join(printable(in_ascii(line)) for line in lines)


def concise_findings(document: Document) -> list[str]:
    """Return a line a finding, the lines that a fix changes below it, and how many are left out."""
    lines: list[str] = []
    for block in findings_in(document):
        for one in block.found:
            lines.append(finding_line(one))
            lines += (f"    {printable(line)}" for line in fix_lines(one.fix))
        lines += map(plain, block.more)
    return lines


def finding_line(finding: FindingBlock) -> str:
    """Return `file:line:column: level: code message`, with what else a line can say of it.

    The level stands where compilers write it: matchers of editors look for it there.
    """
    words = [f"{finding.severity}: {finding.rule} {finding.message}"]
    words += filter(None, map(_detail, finding.details))
    if finding.standing:
        words.append(f"({finding.standing})")
    return printable(f"{_position(finding)}: {' '.join(words)}")


def _position(finding: FindingBlock) -> str:
    if finding.location:
        return f"{finding.location}:{finding.column}"
    # Editors need a line and a column to open the file.
    return f"{_target_file(finding.target)}:1:1"


def _target_file(name: str) -> str:
    """Return the file of a target: `model.py` of `model.py:Net(8)`; else the name."""
    file, is_file, _ = name.partition(".py:")
    return f"{file}.py" if is_file else name


def _detail(fact: Fact) -> str:
    if fact.name in _SAID:
        return ""
    return f"[{fact.text}]" if fact.name == "parameters" else f"({fact.name}: {fact.text})"


def _others(document: Document) -> Iterator[str]:
    for block in document.blocks:
        for inner in block.blocks if isinstance(block, Section) else (block,):
            yield from _lines(inner)


def _lines(block: Inner) -> Iterator[str]:
    """Yield the lines of a block; what is drawn has none, and findings have theirs."""
    match block:
        case Note(line):
            yield plain(line)
        case Points(lines):
            yield from map(plain, lines)
        case Facts(rows):
            yield from (f"{row.name}: {row.text}" for row in rows)
        case Table() if block.is_plain:
            for row in block.rows:
                yield ": ".join(plain(cell) for cell in row if isinstance(cell, str | Word))
        case Findings() | Strips() | Table():
            pass
