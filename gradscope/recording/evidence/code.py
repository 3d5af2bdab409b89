"""The user's code around the lines of a recording."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """Consecutive lines of a file."""

    table: ClassVar[str] = "source"
    file: str
    """As in the sites of the recording."""
    first: int
    """The number of the first line, counted from 1."""
    lines: tuple[str, ...]
    """Without line breaks and spaces at their ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementRecord:
    """A statement on several lines; of one with a block only what stands before the block."""

    table: ClassVar[str] = "statement"
    file: str
    """As in the sites of the recording."""
    first: int
    """The number of its first line, counted from 1."""
    last: int
    text: str
    """As it is written, with its line breaks."""
