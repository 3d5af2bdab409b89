"""Evidence on the user's code around the lines of a recording."""

from typing import ClassVar

from gradscope.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """Consecutive lines of a file."""

    table: ClassVar[str] = "source"
    file: str
    """Path, as in the recording's sites."""
    first: int
    """Number of the first line, counted from 1."""
    lines: tuple[str, ...]
    """Lines without line breaks and trailing spaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementRecord:
    """A statement on several lines; for a compound statement, only its header."""

    table: ClassVar[str] = "statement"
    file: str
    """Path, as in the recording's sites."""
    first: int
    """Number of its first line, counted from 1."""
    last: int
    text: str
    """Source text, with line breaks."""
