"""What a report says, in blocks that every format writes in its own way.

A builder words the facts of one kind of report once, as a `Document`. A renderer writes the blocks
of any document in one format. Neither imports torch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gradscope.analysis.columns import Cells
from gradscope.analysis.folding import Span
from gradscope.recording.finding import Severity
from gradscope.report.snippets import Snippet
from gradscope.report.strips import Scale, StripLayout

Mark = Literal[
    "plain", "strong", "soft", "good", "notable", "bad", "error", "warning", "note", "code", "name"
]
"""How a word stands out. `code` is spelled as it is; so is `name`, a dotted name or a path that a
narrow page breaks at its dots. `soft` is of less weight, `notable` and `bad` are of more."""


@dataclass(frozen=True, slots=True)
class Word:
    """Text with a mark."""

    text: str
    mark: Mark = "plain"


Line = str | Word | tuple[str | Word, ...]
"""A sentence or a part of one. In a `str`, what stands between backticks is code."""


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
class Place:
    """A line of code; a narrow page leaves out some of its folders."""

    location: str
    """`file:line`; empty where it is not known."""
    source: str = ""
    """The code, where it is worth showing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLabel:
    """The name of a module in a tree."""

    level: int
    """How many modules it lies in, from 0."""
    name: str
    """Empty for the model itself."""
    class_name: str = ""
    copies: int = 1
    """How many equal modules it stands for."""
    calls: int = 1
    """How often the forward calls it."""


Value = Line | float | int | Share | Span | Place | TreeLabel | None
"""What stands in a cell of a table; None is a number that is not known."""

ColumnKind = Literal["words", "name", "number", "bar", "logarithmic bar", "trend"]
"""`name` is folded into what room is left. A `bar` draws a number from 0 to 1, a `logarithmic bar`
a `Span`, on one scale for the column. A `trend` is a line of signs that a renderer leaves as it
is. Bars draw what another column says in numbers: a format may leave them out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table."""

    title: str = ""
    kind: ColumnKind = "words"
    rank: int = 0
    """Where a page is narrow, columns of a higher rank are left out first; those of rank 0 stay."""
    is_below: bool = False
    """Whether it goes below the name where there is no room beside."""


def _is_empty(value: Value) -> bool:
    return value in (None, "") or (isinstance(value, Word) and not value.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells; a column in which nothing stands is left out."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    is_plain: bool = False
    """Whether a text page leaves the titles of the columns out."""

    @property
    def filled(self) -> list[int]:
        """The places of the columns in which something stands."""
        return [
            position
            for position in range(len(self.columns))
            if any(not _is_empty(row[position]) for row in self.rows)
        ]


@dataclass(frozen=True, slots=True)
class Fact:
    """A line, and what it is about."""

    name: str
    line: Line
    mark: Mark = "soft"
    """That of the name."""

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
    """What to do on a command line, which a terminal alone shows."""


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
    """`file:line`; empty where no line could be told."""
    column: int = 1
    """Column of the line at which its code begins, from 1; 1 where it is not known."""
    target: str = ""
    """What was inspected, which stands for a line that could not be told."""
    source: str = ""
    """The line of code itself."""
    snippets: tuple[Snippet, ...]
    """Their files are shown as they are: paths relative to the working directory."""
    details: tuple[Fact, ...]
    remedy: str
    standing: str = ""
    """What a comparison says of it, as `new in B`."""
    is_brief: bool = False
    """Whether a line is enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Findings, the worst first, and what they amount to."""

    found: tuple[FindingBlock, ...]
    title: str = ""
    """What a text page writes above them; empty for nothing."""
    note: str = ""
    verdict: Line = ""
    more: tuple[Line, ...] = ()
    """How many are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """Numbers over the steps, each drawn as one sign."""

    label: Line | TreeLabel
    cells: Cells
    """None draws nothing; the strip is empty where nothing was measured."""
    scale: Scale
    course: str
    """The first and the last number."""
    extreme: str = ""
    """What a wide page says beside."""
    is_other: bool = False
    """Whether it is drawn in another colour than the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strips:
    """Strips below each other over the same steps."""

    strips: tuple[Strip, ...]
    first: int
    """The step of the first column."""
    last: int
    layout: StripLayout
    has_axis: bool = True
    """Whether the steps stand below."""


Inner = Facts | Findings | Note | Points | Strips | Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Blocks that belong together, under a title."""

    title: str = ""
    """Empty where they need none."""
    note: Line = ""
    """What the title means, or is of."""
    blocks: tuple[Inner, ...]


Block = Inner | Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A whole report."""

    program: str
    """The command that it is from: `gradscope run`."""
    subject: str
    """What it is about; empty where the blocks say it."""
    header: tuple[Inner, ...]
    blocks: tuple[Block, ...]
    closing: tuple[Inner, ...]
    """What it comes to: last on a terminal, first on a page that is read from the top."""
    next_command: str = ""
    """The command to run next; empty where there is none. Agents and `concise` are told it."""


Build = Callable[[int], Document]
"""Returns a document for a page whose lines hold so many characters, as strips are drawn on."""


def findings_in(document: Document) -> list[Findings]:
    """Return the blocks of findings, those in sections too."""
    inner = [
        one
        for block in document.blocks
        for one in (block.blocks if isinstance(block, Section) else (block,))
    ]
    return [one for one in inner if isinstance(one, Findings)]


def brief(document: Document) -> Document:
    """Return the findings of a document and what it comes to, without a title."""
    found = tuple(replace(one, title="", note="", verdict="") for one in findings_in(document))
    verdicts = [one.verdict for one in findings_in(document) if one.verdict and not one.found]
    return replace(
        document,
        program="",
        subject="",
        header=(),
        blocks=tuple(one for one in found if one.found),
        closing=(
            *(Note(verdict) for verdict in verdicts),
            *(Note(one.line) if isinstance(one, Note) else one for one in document.closing),
        ),
    )


def section(title: str, blocks: Sequence[Inner], *, note: Line = "") -> tuple[Section, ...]:
    """Return a section; nothing where it would be empty."""
    return (Section(title=title, note=note, blocks=tuple(blocks)),) if blocks else ()


def more(count: int, words: str) -> tuple[Line, ...]:
    """Return a line on how many are left out; nothing where none is."""
    return (Word(f"… {count:,} {words}", "soft"),) if count > 0 else ()
