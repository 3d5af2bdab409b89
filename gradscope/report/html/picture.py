"""What a page is made of: sheets, and the pictures on them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gradscope.report.html.columns import Json
from gradscope.report.html.words import Words

PictureKind = Literal["plot", "graph", "table", "timeline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Something to look at."""

    name: str
    """Of its element on the page, unique on a sheet: `depth`."""
    kind: PictureKind
    title: str
    caption: str
    """What is drawn how, in a sentence or two."""
    content: Mapping[str, Json]
    """What its painter draws."""
    is_wide: bool = True
    """Whether it takes the whole width where there is room for two."""
    height: int = 420
    """In CSS pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """All that is shown of one thing reported on."""

    title: str
    words: Words
    pictures: tuple[Picture, ...]
    modules: Mapping[str, Json] = field(default_factory=dict)
    """Columns, a row a module: see `sheet.module_columns`."""
