"""Parameters in the text report of a comparison, the worst first."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gradscope.comparison.comparison import Comparison
from gradscope.comparison.parameters import Change, ComparedParameter, ParameterPair
from gradscope.report.comparison import DEFAULT_TOP
from gradscope.report.comparison.phrasing import (
    PRESENCE,
    TITLES,
    by_side,
    counts_text,
    presence_texts,
    ratio_text,
    spread_text,
)
from gradscope.report.number_format import figure
from gradscope.report.page import Page
from gradscope.report.text_findings import hanging

_GAP = 2
_WITHIN = 5
_NUMBER = 9
_LEAST_NAME = 24

_SILENT: frozenset[Change] = frozenset({*PRESENCE, "equal", "none", "rounding", "shard"})
"""Changes that have no row of their own."""
_STYLES: dict[Change, str] = {
    "non-finite": "bold red",
    "lost": "bold red",
    "zero": "bold red",
    "frozen": "bold red",
    "turned": "magenta",
    "norm": "magenta",
    "reshaped": "magenta",
    "finite": "green",
    "gained": "green",
}


def parameters_section(comparison: Comparison, page: Page, *, top: int) -> Iterator[RenderableType]:
    """Yield how many parameters changed how, and so many of the worst."""
    if not comparison.parameters:
        return
    yield from _counts(comparison, page)
    for words in presence_texts(comparison):
        yield hanging(page.spell(words), page, indent=_GAP, further=_GAP)
    shown = _worst(comparison.parameters)
    beyond = sum(one.change != "within" for one in shown)
    # What is within the tolerance is there to tell how much of it is used.
    most = max(beyond, _WITHIN) if top <= DEFAULT_TOP else top
    count = min(most, top, len(shown))
    if shown:
        yield Text()
        yield _Columns(comparison, page).table(shown[:count])
    if (more := len(shown) - count) > 0:
        yield Text(f"{page.signs.ellipsis} {more:,} more: --top {len(shown)}", style="dim")


def _counts(comparison: Comparison, page: Page) -> Iterator[Text]:
    """Yield how many parameters of each side changed how, and how far they are off."""
    told = [
        (
            side.letter,
            "\n".join(
                [
                    counts_text(comparison, turn),
                    spread_text(comparison, turn, page.signs),
                ]
            ),
        )
        for turn, side in enumerate(comparison.sides[1:], 1)
    ]
    head = "Parameters"
    for letters, words in by_side(told):
        counts, _, spread = words.partition("\n")
        against = f"{letters} against {comparison.sides[0].letter}"
        margin = len("Parameters") + _GAP
        text = hanging(f"{head:{margin}}{against}: {counts}", page, further=margin)
        text.stylize("bold", 0, len(head))
        yield text
        if spread:
            yield hanging(spread, page, indent=margin)
        head = ""


def _worst(parameters: Sequence[ComparedParameter]) -> list[ComparedParameter]:
    shown = [
        one for one in parameters if any(pair and pair.change not in _SILENT for pair in one.pairs)
    ]
    return sorted(shown, key=lambda one: one.worst)


class _Columns:
    """The columns that a page has room for."""

    def __init__(self, comparison: Comparison, page: Page) -> None:
        self._comparison, self._page = comparison, page

    def table(self, rows: Sequence[ComparedParameter]) -> Table:
        """Return the rows, with as many columns as the page has room for."""
        changes = [one.change for one in rows]
        width = max(len(TITLES[change]) for change in changes)
        room = self._page.width - width - _GAP - _LEAST_NAME - _GAP
        columns: dict[str, list[str]] = {}
        for title, cells in self._numbers(rows):
            used = max(len(title), *map(len, cells)) + _GAP
            if used <= room and any(cell not in ("", self._page.signs.dash) for cell in cells):
                columns[title] = cells
                room -= used
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
        table.add_column("", no_wrap=True, width=width)
        table.add_column("parameter", overflow="fold", min_width=16)
        for title in columns:
            table.add_column(title, justify="right", no_wrap=True)
        for position, (one, change) in enumerate(zip(rows, changes, strict=True)):
            is_first = position == 0 or changes[position - 1] != change
            label = Text(TITLES[change] if is_first else "", style=_STYLES.get(change, "dim"))
            name = self._page.path(one.name, _LEAST_NAME + max(room, 0))
            table.add_row(label, name, *(Text(cells[position]) for cells in columns.values()))
        return table

    def _numbers(self, rows: Sequence[ComparedParameter]) -> Iterator[tuple[str, list[str]]]:
        """Yield titles and cells, what tells most first."""
        sides, signs = self._comparison.sides, self._page.signs
        base, others = sides[0].letter, self._others(rows)
        is_one = len(others) == 1
        yield f"norm {base}", [self._norm(one, 0) for one in rows]
        if is_one:
            yield sides[others[0]].letter, [self._norm(one, others[0]) for one in rows]
        for position in others:
            title = f"{sides[position].letter} / {base}"
            yield title, [ratio_text(_of(one, position, "ratio"), signs) for one in rows]
        for position in others:
            title = "cosine" if is_one else f"cos {sides[position].letter}"
            yield title, [ratio_text(_of(one, position, "cosine"), signs) for one in rows]
        if is_one:
            yield from self._further(rows, others[0])

    def _further(
        self, rows: Sequence[ComparedParameter], position: int
    ) -> Iterator[tuple[str, list[str]]]:
        """Yield the columns that there is room for where one side alone differs."""
        signs = self._page.signs
        yield (
            "difference",
            [figure(_of(one, position, "relative_difference"), signs) for one in rows],
        )
        yield "weights", [ratio_text(_of(one, position, "weight_ratio"), signs) for one in rows]
        if self._comparison.steps > 1:
            yield "from step", [self._first(one, position) for one in rows]

    def _others(self, rows: Sequence[ComparedParameter]) -> list[int]:
        """Return the places of the sides in which something is other than in the base."""
        return [
            position
            for position in range(1, len(self._comparison.sides))
            if any((pair := one.pairs[position]) and pair.change not in _SILENT for one in rows)
        ]

    def _norm(self, one: ComparedParameter, position: int) -> str:
        side = one.sides[position]
        if side is None:
            return self._page.signs.dash
        if side.norm is None:
            return "frozen" if side.reach == "frozen" else "none"
        return figure(side.norm, self._page.signs)

    def _first(self, one: ComparedParameter, position: int) -> str:
        pair = one.pairs[position]
        if pair is None or pair.first_difference is None:
            return self._page.signs.dash
        return f"{pair.first_difference:,}"


def _of(one: ComparedParameter, position: int, name: str) -> float | None:
    pair: ParameterPair | None = one.pairs[position]
    value: float | None = None if pair is None else getattr(pair, name)
    return value
