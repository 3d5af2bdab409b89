"""Small tables that the template writes: they are there without JavaScript too."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryCell:
    """A cell of a small table."""

    text: str
    look: str = ""
    """Classes of the style sheet: `error`, `good`, `code`, `short` for what stays on a line."""
    is_number: bool = False
    is_strong: bool = False
    tab: int | None = None
    """The sheet that a click on it opens, by its place on the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryTable:
    """A table of a few rows."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[SummaryCell, ...], ...]
    caption: str = ""

    @property
    def filled(self) -> tuple[int, ...]:
        """The places of the columns in which something stands."""
        positions = range(len(self.header))
        return tuple(
            position for position in positions if any(row[position].text for row in self.rows)
        )
