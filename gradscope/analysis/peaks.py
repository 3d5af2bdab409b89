"""The largest gradient norms of parameters over neighbouring steps, of a million norms quickly."""

import math
from collections.abc import Sequence

from gradscope.analysis.columns import Cells, Columns, held
from gradscope.recording.norm_table import NormTable


def largest_norms(norms: NormTable, columns: Columns) -> dict[int, Cells]:
    """Return the largest norm of each parameter by column; NaN where one is."""
    return {
        parameter: held([cells.get(place) for place in range(columns.count)], cells)
        for parameter, cells in column_peaks(norms, columns).items()
    }


def column_peaks(norms: NormTable, columns: Columns) -> dict[int, dict[int, float | None]]:
    """Return the same of those columns alone in which a parameter was measured.

    None is no gradient in any of a column's steps.
    """
    found: dict[int, dict[int, float | None]] = {}
    for (place, parameters), steps in _alike(norms, columns).items():
        for parameter, measured in zip(parameters, zip(*steps, strict=True), strict=True):
            cells = found.setdefault(parameter, {})
            peak = _peak(measured)
            cells[place] = larger(cells[place], peak) if place in cells else peak
    return found


def _alike(
    norms: NormTable, columns: Columns
) -> dict[tuple[int, tuple[int, ...]], list[Sequence[float]]]:
    """Return the norms of steps, those of one column and the same parameters together."""
    found: dict[tuple[int, tuple[int, ...]], list[Sequence[float]]] = {}
    for step in columns.steps:
        place, rows = columns.place(step), norms.rows_of(step)
        if place is not None:
            parameters = tuple(norms.parameters[rows.start : rows.stop])
            measured = norms.gradients[rows.start : rows.stop]
            found.setdefault((place, parameters), []).append(measured)
    return found


def _peak(measured: Sequence[float]) -> float | None:
    # A NaN is neither larger nor smaller; in a sum, it stays.
    if math.isnan(sum(measured)):
        return math.nan
    peak = max(measured)
    return None if peak < 0 else peak


def larger(one: float | None, other: float | None) -> float | None:
    """Return the larger number; NaN where one is, None where neither is a number."""
    if one is None or other is None:
        return other if one is None else one
    return math.nan if math.isnan(one) or math.isnan(other) else max(one, other)
