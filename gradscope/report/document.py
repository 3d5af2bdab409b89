"""The content of a report, in blocks that each format renders in its own way.

A builder words the facts of one kind of report once, as a `Document`. A renderer writes the blocks
of any document in one format. Neither imports torch.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from gradscope.analysis.columns import Cells
from gradscope.analysis.folding import Span
from gradscope.frozen import dataclass
from gradscope.recording.finding import Fix, Severity
from gradscope.report.snippets import Snippet
from gradscope.report.strips import Scale, StripLayout

Mark = Literal[
    "plain", "strong", "soft", "good", "notable", "bad", "error", "warning", "note", "code", "name"
]
"""Style of a piece of text. `code` is shown verbatim. So is `name`, a dotted name or a path that a
narrow page breaks at its dots. `soft` is less prominent; `notable` and `bad` are more prominent.
"""


@dataclass(frozen=True, slots=True)
class Word:
    """Text with a mark."""

    text: str
    mark: Mark = "plain"


Line = str | Word | tuple[str | Word, ...]
"""A sentence or a part of one. In a `str`, text between backticks is code."""


def plain(line: Line) -> str:
    """Return the text of a line without its marks."""
    if isinstance(line, str):
        return line
    if isinstance(line, Word):
        return line.text
    return "".join(map(plain, line))


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole, from 0 to 1, that is written in percent."""

    value: float


@dataclass(frozen=True, slots=True)
class Location:
    """A line of code; a narrow page omits some of its folders."""

    location: str
    """`file:line`; empty if unknown."""
    source: str = ""
    """Code of the line, if it is worth showing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLabel:
    """The name of a module in a tree."""

    level: int
    """Number of enclosing modules, from 0."""
    name: str
    """Name of the module; empty for the model itself."""
    class_name: str = ""
    copies: int = 1
    """Number of equal modules that it represents."""
    calls: int = 1
    """Number of calls in the forward."""


Value = Line | float | int | Share | Span | Location | TreeLabel | None
"""Value of a table cell; None is an unknown number."""

ColumnKind = Literal["words", "name", "number", "bar", "logarithmic bar", "trend"]
"""`name` is folded to fit. A `bar` draws a number from 0 to 1, a `logarithmic bar` a `Span`, on one
scale per column. A `trend` is a line of characters that renderers show unchanged. Bars repeat
another column's numbers: a format may omit them.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table."""

    title: str = ""
    kind: ColumnKind = "words"
    rank: int = 0
    """Columns of a higher rank are omitted first on a narrow page; those of rank 0 are always
    shown.
    """
    is_below: bool = False
    """Whether it moves below the name if there is no space beside it."""


def _is_empty(value: Value) -> bool:
    return value in (None, "") or (isinstance(value, Word) and not value.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells; an empty column is omitted."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    is_plain: bool = False
    """Whether a text page omits the titles of the columns."""

    @property
    def filled(self) -> list[int]:
        """Indices of the columns that are not empty."""
        return [
            position
            for position in range(len(self.columns))
            if any(not _is_empty(row[position]) for row in self.rows)
        ]


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of text, and its subject."""

    name: str
    line: Line
    mark: Mark = "soft"
    """Style of the name."""

    @property
    def text(self) -> str:
        """The line without marks."""
        return plain(self.line)


@dataclass(frozen=True, slots=True)
class Facts:
    """Lines that begin with what each is about."""

    rows: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence or more, as a paragraph."""

    line: Line
    hint: str = ""
    """Advice for the command line, shown only on a terminal."""


@dataclass(frozen=True, slots=True)
class Points:
    """Lines of a list."""

    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingBlock:
    """A finding with its code."""

    severity: Severity
    rule: str
    name: str
    message: str
    location: str
    """`file:line`; empty if no line is known."""
    column: int = 1
    """Column of the line at which its code begins, counted from 1; 1 if unknown."""
    target: str = ""
    """Name of the target, to show if no line is known."""
    source: str = ""
    """Code of the line."""
    snippets: tuple[Snippet, ...]
    """Code excerpts with their messages. File names are shown as they are: relative to the working
    directory.
    """
    details: tuple[Fact, ...]
    remedy: str
    standing: str = ""
    """Result of a comparison, as `new in B`."""
    is_brief: bool = False
    """Whether one line is enough."""
    fix: Fix | None = None
    """Its fix, for formats that show one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Findings, the worst first, and their summary."""

    found: tuple[FindingBlock, ...]
    title: str = ""
    """Title on a text page; empty for none."""
    note: str = ""
    verdict: Line = ""
    more: tuple[Line, ...] = ()
    """Lines that say how many findings are omitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """Numbers over the steps, each drawn as one sign."""

    label: Line | TreeLabel
    cells: Cells
    """Cells of the strip. None draws nothing; the strip is empty if nothing was measured."""
    scale: Scale
    course: str
    """First and last number."""
    extreme: str = ""
    """Extreme value that a wide page shows beside the strip."""
    is_other: bool = False
    """Whether it is drawn in another colour than the other strips."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strips:
    """Strips over the same steps, one below the other."""

    strips: tuple[Strip, ...]
    first: int
    """Step of the first column."""
    last: int
    layout: StripLayout
    has_axis: bool = True
    """Whether the steps are shown below."""


Inner = Facts | Findings | Note | Points | Strips | Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Blocks that belong together, under a title."""

    title: str = ""
    """Title of the strips; empty if they need none."""
    note: Line = ""
    """Explanation of the title."""
    result: Line = ""
    """What a brief report says of it; empty if nothing."""
    blocks: tuple[Inner, ...]


Block = Inner | Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A whole report."""

    program: str
    """Command that made the document: `gradscope run`."""
    subject: str
    """Subject of the document; empty if the blocks name it."""
    header: tuple[Inner, ...]
    blocks: tuple[Block, ...]
    closing: tuple[Inner, ...]
    """Conclusion: last on a terminal, first on a page that is read from the top."""
    next_command: str = ""
    """Command to run next; empty if there is none. Agents and `concise` show it."""
    shows_next: bool = False
    """Whether people are shown that command, too, and not only agents."""


Build = Callable[[int], Document]
"""Returns a document for a page with lines of this many characters, on which strips are drawn."""


def findings_in(document: Document) -> list[Findings]:
    """Return the blocks of findings, those in sections too."""
    inner = [
        one
        for block in document.blocks
        for one in (block.blocks if isinstance(block, Section) else (block,))
    ]
    return [one for one in inner if isinstance(one, Findings)]


def brief(document: Document) -> Document:
    """Return the findings, results and conclusion of a document, without a title."""
    found = [one for one in findings_in(document) if one.found]
    verdicts = [one.verdict for one in findings_in(document) if one.verdict and not one.found]
    results = [one.result for one in document.blocks if isinstance(one, Section) and one.result]
    # A brief report gives no advice on the command line.
    closing = [Note(one.line) if isinstance(one, Note) else one for one in document.closing]
    if verdicts and closing and isinstance(last := closing[-1], Note):
        closing[-1] = Note((*_segments(verdicts[0]), " ", *_segments(last.line)))
    return replace(
        document,
        program="",
        subject="",
        header=(),
        blocks=tuple(replace(one, title="", note="", verdict="") for one in found),
        closing=(*map(Note, results), *closing),
    )


def _segments(line: Line) -> tuple[str | Word, ...]:
    return line if isinstance(line, tuple) else (line,)


def section(title: str, blocks: Sequence[Inner], *, note: Line = "") -> tuple[Section, ...]:
    """Return a section; nothing if it is empty."""
    return (Section(title=title, note=note, blocks=tuple(blocks)),) if blocks else ()


def more(count: int, words: str) -> tuple[Line, ...]:
    """Return a line on the number of omitted items; nothing if there are none."""
    return (Word(f"… {count:,} {words}", "soft"),) if count > 0 else ()
