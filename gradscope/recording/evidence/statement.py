"""The statements that stand on several lines, of which a site names one."""

from dataclasses import dataclass
from typing import ClassVar


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
