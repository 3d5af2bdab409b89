"""The source code around the lines of a recording, so that a report needs no file of the user's."""

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
