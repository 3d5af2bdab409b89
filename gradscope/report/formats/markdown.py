"""A document in Markdown, for comments on pull requests."""

import re
from collections.abc import Iterable, Iterator
from textwrap import dedent

from gradscope.analysis.view import line_text
from gradscope.phrasing import counted, printable
from gradscope.report.document import (
    Block,
    Build,
    Document,
    Facts,
    FindingBlock,
    Findings,
    Inner,
    Line,
    Location,
    Note,
    Points,
    Section,
    Strips,
    Table,
    TreeLabel,
    Value,
    Word,
    plain,
)
from gradscope.report.finding_phrasing import fix_text
from gradscope.report.number_format import value_text
from gradscope.report.snippets import Snippet
from gradscope.report.strips import strip

# Text that a code span holds as it is, in the cell of a table too.
_PLAIN = re.compile(r"[\w.:/ ,=()\[\]+-]+", re.ASCII)

# To a regular expression `_` is a letter, to Markdown it is emphasis.
_ACTIVE = re.compile(r"[^\w\s.,:;()/=+'\"→·×…—▁-█%-]|_")  # noqa: RUF001 - multiplication

_BACKTICKS = re.compile("`+")


def code(text: str) -> str:
    """Return text in code type.

    Inside a code span, nothing can escape a backtick, nor a pipe everywhere: such text is spelled
    in character references.
    """
    text = printable(text)
    if _PLAIN.fullmatch(text):
        return f"`{text}`"
    return f"<code>{escape(text)}</code>" if text else ""


def escape(text: str) -> str:
    """Return text without special meaning in Markdown and HTML, mentions included."""
    return _ACTIVE.sub(lambda sign: f"&#{ord(sign[0])};", printable(text))


def prose(text: str) -> str:
    """Return a sentence in which text between backticks is code, and nothing else is markup."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # the last backtick has no partner
        return escape(text)
    return "".join(
        code(part) if position % 2 else escape(part) for position, part in enumerate(parts)
    )


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table, whose cells are Markdown already."""
    titles = tuple(header)
    lines = [titles, ("---",) * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def fenced(snippet: Snippet) -> str:
    """Return lines of code, the important one marked, in a fence longer than any in them."""
    lines = [
        f"{'>' if line.number == snippet.line else ' '} {line.number} {printable(line.text)}"
        for line in snippet.lines
    ]
    return _fence(lines, "python")


def preformatted(lines: Iterable[str]) -> str:
    """Return lines of text that keep their columns."""
    return _fence([printable(line) for line in lines], "text")


def _fence(lines: list[str], language: str) -> str:
    runs = _BACKTICKS.findall("\n".join(lines))
    fence = "`" * max(3, 1 + max(map(len, runs), default=0))
    return "\n".join([f"{fence}{language}", *lines, fence])


_WIDTH = 100
"""Number of characters of a line with a strip."""

_BOLD = ("strong", "bad", "error", "warning", "note")


def render_markdown(build: Build) -> str:
    """Return the document, without a last line break."""
    return "\n\n".join(markdown_paragraphs(build(_WIDTH)))


def markdown_paragraphs(document: Document) -> Iterator[str]:
    """Yield the title, the conclusion of the document, and its blocks."""
    subject = f": {code(document.subject)}" if document.subject else ""
    yield f"## {document.program}{subject}"
    for block in (*document.closing, *document.header, *document.blocks):
        yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    if not isinstance(block, Section):
        yield from _paragraphs(block)
        return
    if block.title:
        yield f"### {escape(block.title)}"
    if block.note:
        yield _inline(block.note)
    for inner in block.blocks:
        yield from _paragraphs(inner)


def _paragraphs(block: Inner) -> Iterator[str]:
    match block:
        case Facts(rows):
            yield "\n".join(f"- **{escape(row.name)}**: {_inline(row.line)}" for row in rows)
        case Note(line):
            yield _inline(line)
        case Points(lines):
            yield "\n".join(f"- {_inline(line)}" for line in lines)
        case Findings():
            yield from _findings(block)
        case Strips():
            yield preformatted(strip_lines(block))
        case Table():
            yield _table(block)


def _inline(line: Line) -> str:
    """Return a line in which only its own marks are markup."""
    if isinstance(line, str):
        return prose(line)
    if isinstance(line, tuple):
        return "".join(map(_inline, line))
    if line.mark in ("code", "name"):
        return code(line.text)
    return f"**{prose(line.text)}**" if line.mark in _BOLD and line.text else prose(line.text)


def _findings(findings: Findings) -> Iterator[str]:
    yield "### Findings"
    if findings.note:
        yield escape(findings.note)
    if findings.verdict:
        yield escape(plain(findings.verdict))
    for one in findings.found:
        if not one.is_brief:
            yield from finding_paragraphs(one)
    brief = [f"- {_title(one)}" for one in findings.found if one.is_brief]
    if lines := [*brief, *(f"- {_inline(line)}" for line in findings.more)]:
        yield "\n".join(lines)


def _title(finding: FindingBlock) -> str:
    standing = f"{escape(finding.standing)}: " if finding.standing else ""
    at = f" at {code(finding.location)}" if finding.location else ""
    title = f"**{finding.severity} {finding.rule} {finding.name}**"
    return f"{standing}{title}{at}: {prose(finding.message)}"


def finding_paragraphs(finding: FindingBlock) -> Iterator[str]:
    """Yield a finding, its code, and what else is known of it."""
    yield _title(finding)
    yield from (fenced(snippet) for snippet in finding.snippets[:1] if snippet.lines)
    related = [
        (line_text(snippet.file, line.number), label.message)
        for snippet in finding.snippets
        for line in snippet.lines
        for label in line.labels
        if not label.is_cause
    ]
    related += [
        (line_text(snippet.file, snippet.line), snippet.message)
        for snippet in finding.snippets
        if snippet.message
    ]
    lines = [f"- {code(location)}: {prose(message)}" for location, message in related]
    lines += [f"- {fact.name}: {_inline(fact.line)}" for fact in finding.details]
    yield "\n".join([*lines, f"- **help**: {prose(finding.remedy)}"])
    if finding.fix is not None:
        yield f"**fix**, {escape(fix_text(finding.fix))}"
        yield _fence([printable(line) for line in finding.fix.diff.split("\n")], "diff")


def _table(block: Table) -> str:
    shown = [at for at in block.filled if "bar" not in block.columns[at].kind]
    titles = (escape(block.columns[at].title) for at in shown)
    return table(titles, ([_cell(row[at]) for at in shown] for row in block.rows))


def _cell(value: Value) -> str:
    match value:
        case str() | Word() | tuple():
            return _inline(value)
        case Location():
            return code(value.location)
        case TreeLabel():
            name = code(value.name or value.class_name)
            # Markdown drops spaces at the start of a cell.
            return f"{'&nbsp;&nbsp;' * value.level}{name}{escape(tree_text(value))}"
        case _:
            return value_text(value)


def tree_text(label: TreeLabel) -> str:
    """Return the text after the name of a module: number of modules, calls, class."""
    parts = [
        f"×{label.copies}" if label.copies > 1 else "",  # noqa: RUF001 - multiplication
        f"({counted(label.calls, 'call')})" if label.calls > 1 else "",
        label.class_name if label.name not in ("", label.class_name) else "",
    ]
    return "".join(f" {word}" for word in parts if word)


def strip_lines(block: Strips) -> list[str]:
    """Return strips as lines of characters, aligned with each other."""
    labels = dedent("\n".join(_label(one.label) for one in block.strips)).split("\n")
    width = max(map(len, labels), default=0)
    count = max((len(one.cells) for one in block.strips), default=0)
    lines = [
        f"{label:<{width}}  {strip(one.cells, one.scale):<{count}}  {one.course}  {one.extreme}"
        for label, one in zip(labels, block.strips, strict=True)
    ]
    return [line.rstrip() for line in lines]


def _label(label: Line | TreeLabel) -> str:
    if isinstance(label, TreeLabel):
        return "  " * label.level + printable(label.name or label.class_name)
    return printable(plain(label)).rstrip()
