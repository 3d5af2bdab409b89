"""The edit that fixes a finding, and what the repaired program showed."""

from dataclasses import dataclass
from typing import Literal

Safety = Literal["safe", "unsafe"]
"""`unsafe` fixes change what the program is meant to compute."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Position:
    """A position in a text file."""

    line: int
    """Counted from 1."""
    column: int
    """Counted from 1, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The replacement of a range of a file."""

    file: str
    """Absolute path."""
    start: Position
    end: Position
    """First position behind the range; equal to the start if text is only inserted."""
    replacement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The step before or after a fix."""

    loss: float | None
    grad_norm: float | None
    """Global norm of the gradient; None without a gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """The edits that fix a finding, and how the repaired program ran."""

    safety: Safety
    edits: tuple[Edit, ...]
    diff: str
    """Unified diff of all edits, with paths relative to the working directory."""
    verified: bool | None = None
    """Whether the repaired program ran without the finding; None if it was not run."""
    verdict: str = ""
    """Result of that run, in words."""
    before: Numbers | None = None
    after: Numbers | None = None
    """The numbers of the repaired program; None if it was not run, or did not end."""
