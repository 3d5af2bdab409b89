"""The tree of modules as a map: areas of parameters, coloured by a measure."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from gradscope.analysis.report import Report
from gradscope.analysis.rows import ModuleRow
from gradscope.frozen import dataclass
from gradscope.report.html.charts.axes import exact
from gradscope.report.html.charts.colours import ColourScale
from gradscope.report.html.charts.module_cells import (
    Cell,
    ModuleMeasures,
    ModuleState,
    areas,
    cells_of,
    leaf_count,
    module_measures,
    state_of,
)
from gradscope.report.html.columns import Json, numbers, positions, single_numbers, texts
from gradscope.report.html.page import Chart
from gradscope.report.html.tables import column, module_column, word_column

MOST_DRAWN = 900
"""Maximum number of modules drawn at once; deeper modules appear when their parent is opened."""

_FLATTEST, _TALLEST, _AROUND, _LEAF = 300, 760, 110, 20
"""Heights in CSS pixels: of the chart at least and at most, around the cells, and of a leaf."""

_MANY = 150
"""Number of cells above which thick lines would hide the colours."""
_COLOURS: dict[ModuleState, str] = {
    "broken": "@broken",
    "zero": "@zero",
    "none": "@none",
    "frozen": "@frozen",
    "empty": "@panel",
}
_LETTERS: dict[ModuleState, str] = {
    "broken": "@paper",
    "zero": "@paper",
    "none": "@paper",
    "frozen": "@paper",
    "empty": "@ink",
}
_PATTERNS: dict[ModuleState, str] = {"broken": "x", "zero": "/", "none": "\\", "frozen": "."}
"""Patterns for states without a number, which differ in more than a colour."""
_WORDS: dict[ModuleState, str] = {"none": "no gradient", "frozen": "frozen"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Colouring:
    """A measure that the colours of the map show."""

    label: str
    """Label of the button."""
    title: str
    """Title beside the scale."""
    of: Callable[[ModuleMeasures], float | None]
    column: str | None = None
    """Column of the modules' table with the same measure."""
    is_of_parameters: bool = True
    is_gain: bool = False


COLOURINGS = (
    Colouring(label="gradient norm", title="gradient norm", of=lambda one: one.norm, column="norm"),
    Colouring(label="per element", title="rms of the gradient", of=lambda one: one.rms),
    Colouring(label="÷ weight", title="gradient / weight norm", of=lambda one: one.to_weight),
    Colouring(
        label="at the output",
        title="gradient norm at the output",
        of=lambda one: one.output,
        is_of_parameters=False,
    ),
    Colouring(
        label="gain of backward",
        title="norm at the input / at the output",
        of=lambda one: one.gain,
        is_of_parameters=False,
        is_gain=True,
    ),
)


def module_map(report: Report) -> Chart | None:
    """Return the map; None of a model that is one module alone."""
    if len(report.modules) < 2:
        return None
    cells, measures = cells_of(report), module_measures(report)
    # A map also shows modules without a gradient.
    norm, *others = COLOURINGS
    known = [norm, *(one for one in others if any(one.of(m) is not None for m in measures))]
    colours = [_coloured(one, cells, measures) for one in known]
    return Chart(
        name="modules",
        kind="plot",
        title="Map of the modules",
        caption=(
            "Children are to the right of their parent. Click a module to open it; click the left "
            "or the bar above to go back. ⚠ marks modules with findings."
            f"{_left_out(cells)}"
        ),
        content={
            "figure": {
                "data": [_tree(cells, measures, colours[0]), _scale(colours[0])],
                "layout": _LAYOUT,
            },
            "switches": [
                {"label": "colour", "choices": [one.choice() for one in colours]},
                {"label": "area", "choices": list(_area_choices(cells))},
                {"label": "as", "choices": _SHAPES},
            ],
        },
        height=min(_TALLEST, max(_FLATTEST, _AROUND + _LEAF * leaf_count(cells))),
    )


_LAYOUT: dict[str, Json] = {
    "margin": {"l": 4, "r": 4, "t": 30, "b": 8},
    "xaxis": {"visible": False},
    "yaxis": {"visible": False},
}
_SHAPES: list[Json] = [
    # The labels of an icicle are fitted by `assets/icicle.js`.
    {
        "label": "icicle",
        "data": [{"type": "icicle", "leaf": {"opacity": 1}}],
        "layout": {"uniformtext": {"mode": False}},
    },
    {
        "label": "treemap",
        "data": [{"type": "treemap"}],
        "layout": {"uniformtext": {"minsize": 9, "mode": "hide"}},
    },
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Coloured:
    """One way to colour the cells."""

    colouring: Colouring
    colours: Json
    letters: Json
    """Text colours of the cells."""
    patterns: Json
    scale: ColourScale

    def choice(self) -> Json:
        tree: Json = {
            "marker": {"colors": self.colours, "pattern": {"shape": self.patterns}},
            "textfont": {"color": self.letters},
            "meta": {"written": self.colouring.label},
        }
        bar: Json = {"marker": self.scale.bar(self.colouring.title)}
        return {"label": self.colouring.label, "data": [tree, bar]}


def _left_out(cells: Sequence[Cell]) -> str:
    held = Counter(cell.parent for cell in cells)
    if max(held.values()) <= MOST_DRAWN:
        return ""
    return f" The {MOST_DRAWN:,} largest children of each module are drawn."


def _coloured(
    colouring: Colouring, cells: Sequence[Cell], measures: Sequence[ModuleMeasures]
) -> _Coloured:
    values = [colouring.of(one) for one in measures]
    make = ColourScale.around_one if colouring.is_gain else ColourScale.over
    scale = make(values)
    found = [_of_cell(cell, colouring, measures) for cell in cells]
    return _Coloured(
        colouring=colouring,
        colours=texts(
            scale.colour(value) if state == "number" and value else _COLOURS[state]
            for state, value in found
        ),
        letters=texts(
            scale.letters(value) if state == "number" and value else _LETTERS[state]
            for state, value in found
        ),
        patterns=texts(_PATTERNS.get(state, "") for state, _ in found),
        scale=scale,
    )


def _of_cell(
    cell: Cell, colouring: Colouring, measures: Sequence[ModuleMeasures]
) -> tuple[ModuleState, float | None]:
    if cell.module is None:
        return "empty", None
    measured = measures[cell.module]
    value = colouring.of(measured)
    absence = measured.absence if colouring.is_of_parameters else "empty"
    return state_of(value, absence), value


def _tree(
    cells: Sequence[Cell], measures: Sequence[ModuleMeasures], coloured: _Coloured
) -> dict[str, Json]:
    return {
        "type": "icicle",
        "ids": [cell.key for cell in cells],
        "parents": texts(cell.parent for cell in cells),
        "level": _opened(cells),
        "labels": texts(cell.name for cell in cells),
        "values": single_numbers(areas(cells, "root")),
        # A value is a cell's own area: plotly adds those of the cells inside.
        "branchvalues": "remainder",
        "sort": False,
        "texttemplate": "%{label}  %{text}",
        "textfont": {"color": coloured.letters},
        "marker": {
            "colors": coloured.colours,
            "pattern": {
                "shape": coloured.patterns,
                "fgopacity": 0.4,
                "size": 12,
                "solidity": 0.15,
            },
            "line": {
                "color": texts(_border(cell) for cell in cells),
                "width": 2 if len(cells) < _MANY else 1,
            },
        },
        "pathbar": {"thickness": 22},
        "meta": {
            "links": {"module": positions(cell.module for cell in cells)},
            "told": _tooltip_columns(cells, measures),
            "written": coloured.colouring.label,
            "most": MOST_DRAWN,
        },
    }


def _opened(cells: Sequence[Cell]) -> str:
    """Return the cell that is open at first: the outermost one with several children."""
    held: dict[str, list[str]] = {}
    for cell in cells:
        held.setdefault(cell.parent, []).append(cell.key)
    opened = cells[0].key
    while len(inner := held.get(opened, [])) == 1 and inner[0] in held:
        (opened,) = inner
    return opened


def _scale(coloured: _Coloured) -> dict[str, Json]:
    """Return a trace without marks that has the colour bar beside it."""
    return {
        "type": "scatter",
        "mode": "markers",
        # Plotly drops a trace of no points, and its colour bar.
        "x": [None, None],
        "y": [None, None],
        "hoverinfo": "skip",
        "marker": coloured.scale.bar(coloured.colouring.title),
    }


def _area_choices(cells: Sequence[Cell]) -> Iterator[Json]:
    yield {"label": "√ parameters", "data": [{"values": single_numbers(areas(cells, "root"))}]}
    yield {"label": "parameters", "data": [{"values": single_numbers(areas(cells, "parameters"))}]}
    yield {"label": "equal", "data": [{"values": single_numbers(areas(cells, "equal"))}]}


def _border(cell: Cell) -> str:
    return f"@{cell.findings[0].severity}" if cell.findings else "@paper"


def _tooltip_columns(cells: Sequence[Cell], measures: Sequence[ModuleMeasures]) -> list[Json]:
    """Return the texts of the cells as columns of a table."""
    rows = [cell.row for cell in cells]
    found = [None if row is None else measures[row.index] for row in rows]
    absences = [None if one is None else _WORDS.get(one.absence) for one in found]
    columns = (
        module_column("module", "name", "path"),
        module_column("class", "text", "class"),
        module_column("elements", "count", "numel"),
        module_column("parameters", "count", "parameters"),
        *word_column("state", "state", absences),
        *(_measured(one, found) for one in COLOURINGS),
        *word_column("gains", "text", [None if row is None else _gains(row) for row in rows]),
        *word_column("findings", "findings", [_findings(cell) for cell in cells]),
    )
    return list(columns)


def _measured(colouring: Colouring, found: Sequence[ModuleMeasures | None]) -> dict[str, Json]:
    if colouring.column is not None:
        return module_column(colouring.label, "number", colouring.column)
    values = numbers(None if one is None else colouring.of(one) for one in found)
    return column(colouring.label, "number", values)


def _findings(cell: Cell) -> str | None:
    codes = dict.fromkeys(f"{finding.severity} {finding.rule}" for finding in cell.findings)
    return " ".join(codes) or None


def _gains(row: ModuleRow) -> str | None:
    """Return the range of the gains of several calls."""
    gains = [call.gain for call in row.calls if call.gain is not None]
    if len(gains) < 2:
        return None
    return f"{exact(min(gains))} to {exact(max(gains))} in {len(gains):,} calls"
