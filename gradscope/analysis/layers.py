"""Gradient norms over the steps of a run: of layers, of parameters, and their peaks."""

import math
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain
from statistics import median

from gradscope.analysis.columns import Cells, Columns, held
from gradscope.analysis.folding import (
    FoldedModule,
    cut_below,
    fitting_depth,
    fold_modules,
    merge_containers,
    without_plain,
)
from gradscope.analysis.norms import total_norm
from gradscope.analysis.report import Report
from gradscope.analysis.rows import ModuleRow, parameters_held
from gradscope.analysis.selection import modules_below
from gradscope.analysis.view import ViewOptions
from gradscope.frozen import dataclass
from gradscope.recording.evidence.training import TrainedOptimizer
from gradscope.recording.norm_table import NOT_MEASURED, NormTable, are_unmeasured, norms_of
from gradscope.recording.records import Recording


def largest_norms(norms: NormTable, columns: Columns) -> dict[int, Cells]:
    """Return the largest norm of each parameter by column; NaN if one is."""
    return {
        parameter: held([cells.get(position) for position in range(columns.count)], cells)
        for parameter, cells in column_peaks(norms, columns).items()
    }


def column_peaks(norms: NormTable, columns: Columns) -> dict[int, dict[int, float | None]]:
    """Return the same for only those columns in which a parameter was measured.

    None is no gradient in any of a column's steps.
    """
    found: dict[int, dict[int, float | None]] = {}
    # Steps mostly measure the same parameters: `map(max, ...)` over whole rows stays in C.
    for (position, parameters), steps in _alike(norms, columns).items():
        # A NaN is neither larger nor smaller; in a sum, it stays.
        is_plain = not any(math.isnan(sum(norms)) for norms in steps)
        if is_plain:
            # `max` of a single number raises: it expects an iterable.
            peaks = map(_one, map(max, *steps) if len(steps) > 1 else steps[0])
        else:
            peaks = map(_peak, zip(*steps, strict=True))
        for parameter, peak in zip(parameters, peaks, strict=True):
            cells = found.setdefault(parameter, {})
            cells[position] = larger(cells[position], peak) if position in cells else peak
    return found


def _alike(
    norms: NormTable, columns: Columns
) -> dict[tuple[int, tuple[int, ...]], list[Sequence[float]]]:
    """Return the norms of steps, grouped by column and equal parameters."""
    found: dict[tuple[int, tuple[int, ...]], list[Sequence[float]]] = {}
    for step in columns.steps:
        position, rows = columns.position(step), norms.rows_of(step)
        if position is not None:
            parameters = tuple(norms.parameters[rows.start : rows.stop])
            measured = norms.gradients[rows.start : rows.stop]
            found.setdefault((position, parameters), []).append(measured)
    return found


def _one(norm: float) -> float | None:
    return None if norm < 0 else norm


def _peak(measured: Sequence[float]) -> float | None:
    return math.nan if any(map(math.isnan, measured)) else _one(max(measured))


def larger(one: float | None, other: float | None) -> float | None:
    """Return the larger number; NaN if one is, None if both are missing."""
    if one is None or other is None:
        return other if one is None else one
    return math.nan if math.isnan(one) or math.isnan(other) else max(one, other)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCourse:
    """Measurements of a parameter, from the first step to the last."""

    last: float | None
    """Last measured norm; None if there was no gradient at that time."""
    middle: float | None
    """Median of the finite norms."""
    largest: float | None
    """Largest finite norm."""
    largest_step: int | None
    first_nonfinite: int | None
    """First step with a NaN or infinite gradient."""
    without: int
    """Number of steps without a gradient."""
    zero: int
    """Number of steps with a gradient of only zeros."""
    update: float | None
    """Median of a step's update norm over the weight norm."""


def parameter_courses(recording: Recording) -> dict[int, ParameterCourse]:
    """Return the course of every parameter that was measured, by parameter."""
    norms = norms_of(recording)
    parts: dict[int, list[_Part]] = {}
    for measured, block in norms.blocks():
        count = len(measured)
        steps = norms.steps[block.start : block.stop : count]
        updates, weights = _with_updates(norms, block, count)
        for place, parameter in enumerate(measured):
            own = slice(block.start + place, block.stop, count)
            part = steps, norms.gradients[own], updates[place::count], weights[place::count]
            parts.setdefault(parameter, []).append(part)
    return {parameter: _course(*_joined(own)) for parameter, own in parts.items()}


_Part = tuple[Sequence[int], Sequence[float], Sequence[float], Sequence[float]]
"""A parameter's steps and norms, and updates and weights in the steps that measured updates."""


def _with_updates(
    norms: NormTable, block: range, count: int
) -> tuple["array[float]", "array[float]"]:
    """Return the updates and weights of the steps of a block that measured updates: few do."""
    updates, weights = array("d"), array("d")
    for start in range(block.start, block.stop, count):
        own = norms.updates[start : start + count]
        if not are_unmeasured(own):
            updates.extend(own)
            weights.extend(norms.weights[start : start + count])
    return updates, weights


def _joined(parts: Sequence[_Part]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    steps, gradients, updates, weights = zip(*parts, strict=True)
    return (
        list(chain.from_iterable(steps)),
        list(chain.from_iterable(gradients)),
        list(chain.from_iterable(updates)),
        list(chain.from_iterable(weights)),
    )


def _course(
    steps: Sequence[int],
    gradients: Sequence[float],
    updates: Sequence[float],
    weights: Sequence[float],
) -> ParameterCourse:
    gradients = list(gradients)  # each number becomes an object once, and not in each reading
    finite, first_nonfinite = gradients, None
    # A finite sum shows that all numbers are finite, and stays in C. One that overflows only costs
    # the loop below.
    if not math.isfinite(sum(gradients)) or NOT_MEASURED in gradients:
        finite = [norm for norm in gradients if 0 <= norm < math.inf]
        places = (place for place, norm in enumerate(gradients) if not math.isfinite(norm))
        first_nonfinite = next((steps[place] for place in places), None)
    finite = sorted(finite)
    largest = finite[-1] if finite else None
    return ParameterCourse(
        last=None if gradients[-1] < 0 else gradients[-1],
        middle=median(finite) if finite else None,
        largest=largest,
        largest_step=None if largest is None else steps[gradients.index(largest)],
        first_nonfinite=first_nonfinite,
        without=gradients.count(NOT_MEASURED) if len(finite) < len(gradients) else 0,
        zero=bisect_right(finite, 0.0),
        update=_update(updates, weights),
    )


def _update(updates: Sequence[float], weights: Sequence[float]) -> float | None:
    """Return the median of a step's update norm over the weight norm; None if not measured."""
    ratios = [
        update / weight
        for update, weight in zip(updates, weights, strict=True)
        if update != NOT_MEASURED and weight
    ]
    known = [ratio for ratio in ratios if math.isfinite(ratio)]
    return median(known) if known else None


def optimizer_names(recording: Recording) -> dict[int, str]:
    """Return the optimizers that hold each parameter, by parameter."""
    found: dict[int, dict[str, None]] = {}
    for record in recording.evidence_of(TrainedOptimizer):
        for parameter in record.parameters:
            found.setdefault(parameter, {})[record.name or record.class_name] = None
    return {parameter: ", ".join(names) for parameter, names in found.items()}


_NUMBER = re.compile(r"#\d+(?=\.|$)")
"""Suffix that distinguishes a model from an earlier one of the same name, as in `model#2.head`."""
ROWS = 20
"""Number of rows to which the tree is cut, unless the reader sets a depth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A module or several that repeat, and the norm of their gradients in each column."""

    module: FoldedModule
    level: int
    """Depth in the displayed tree."""
    cells: Cells
    """Root of the sum of squares over a module's parameters, each with its largest norm of the
    column. For several modules, the largest such value.
    """
    is_measured: bool
    """Whether a step looked for their gradients, which may have been missing in all steps."""


def layers(report: Report, view: ViewOptions, columns: Columns, rows: int = ROWS) -> list[Layer]:
    """Return a row for each module with parameters, as deep as fits."""
    norms = _Norms(report.recording, columns)
    found = outline(modules_below(report, view), norms.mark, rows, view.depth)
    return [
        Layer(
            module=module,
            level=level,
            cells=norms.largest(module),
            is_measured=any(map(norms.is_measured, module.rows)),
        )
        for module, level in found
    ]


def outline(
    rows: Sequence[ModuleRow],
    mark: Callable[[ModuleRow], Hashable],
    most: int,
    depth: int | None = None,
) -> list[tuple[FoldedModule, int]]:
    """Return the modules with parameters, and their depth in the displayed tree.

    Args:
        rows: Modules.
        mark: What those have to agree in that are shown as one.
        most: The tree is cut to so many rows, unless the next is given.
        depth: How deep below the first module it goes.
    """
    # Repeated modules are shown separately if there is space.
    trees = _trees(rows, lambda row: row.index)
    if sum(merge_containers(tree).size() for tree in trees) > most:
        trees = _trees(rows, mark)
    deepest = _depth(rows, trees, depth, most)
    return [
        line
        for tree in trees
        for line in with_levels(merge_containers(cut_below(tree, deepest)), 0)
    ]


def module_norms(report: Report, columns: Columns) -> list[tuple[ModuleRow, Cells]]:
    """Return the gradient norms of every module with parameters, by column."""
    norms = _Norms(report.recording, columns)
    return [(row, norms.of(row)) for row in report.modules if row.parameters]


def _trees(rows: Sequence[ModuleRow], mark: Callable[[ModuleRow], Hashable]) -> list[FoldedModule]:
    folded = fold_modules(rows, mark)
    return merged_roots([tree for root in folded if (tree := without_plain(root)) is not None])


def merged_roots(trees: Sequence[FoldedModule]) -> list[FoldedModule]:
    """Return the trees with those as one that have the same names and classes throughout.

    A model that is made anew for each fold or trial is another to torch, and the same to a reader.
    """
    alike: dict[Hashable, list[FoldedModule]] = {}
    for tree in trees:
        alike.setdefault(_structure(tree), []).append(tree)
    return [_together(group) for group in alike.values()]


def _structure(tree: FoldedModule) -> Hashable:
    name = _NUMBER.sub("", tree.name)
    return (name, tree.rows[0].class_name, *map(_structure, tree.children))


def _together(trees: Sequence[FoldedModule]) -> FoldedModule:
    if len(trees) == 1:
        return trees[0]
    return FoldedModule(
        name=_NUMBER.sub("", trees[0].name),
        copies=sum(tree.copies for tree in trees),
        rows=tuple(row for tree in trees for row in tree.rows),
        children=tuple(map(_together, zip(*(tree.children for tree in trees), strict=True))),
    )


def _depth(
    rows: Sequence[ModuleRow], trees: Sequence[FoldedModule], wanted: int | None, most: int
) -> int:
    if wanted is not None and rows:
        return min(row.depth for row in rows) + wanted
    return fitting_depth(trees, most)


def with_levels(module: FoldedModule, level: int) -> Iterator[tuple[FoldedModule, int]]:
    """Yield a module and all below it, each with its level."""
    yield module, level
    for child in module.children:
        yield from with_levels(child, level + 1)


class _Norms:
    """The gradient norms of modules, by column."""

    def __init__(self, recording: Recording, columns: Columns) -> None:
        self._columns = columns
        self._below = parameters_held(recording)
        self._known: dict[int, Cells] = {}
        self._cells = largest_norms(norms_of(recording), columns)

    def mark(self, row: ModuleRow) -> Hashable:
        """Return what modules have to agree in to be one row: their size, and their fate."""
        cells = self.of(row)
        known = [value for value in cells if value is not None]
        gaps = tuple(value is None for value in cells)
        return (row.own_numel, row.trainable_parameters, gaps, all(map(math.isfinite, known)))

    def is_measured(self, row: ModuleRow) -> bool:
        """Return whether a step looked for a gradient of one of the module's parameters."""
        return any(position in self._cells for position in self._below[row.index])

    def of(self, row: ModuleRow) -> Cells:
        """Return the norms of one module."""
        known = self._known.get(row.index)
        if known is None:
            held = [
                self._cells[position]
                for position in self._below[row.index]
                if position in self._cells
            ]
            # Without measured parameters, `zip` would yield no columns at all.
            nothing: Cells = (None,) * self._columns.count
            known = self._known[row.index] = tuple(
                total_norm(value for value in column if value is not None)
                for column in zip(nothing, *held, strict=True)
            )
        return known

    def largest(self, module: FoldedModule) -> Cells:
        """Return, column by column, the norm of the module that has the largest."""
        columns = zip(*(self.of(row) for row in module.rows), strict=True)
        return tuple(map(largest, columns))


def largest(values: Iterable[float | None]) -> float | None:
    """Return the largest number; NaN if one is, None without any."""
    known = [value for value in values if value is not None]
    return math.nan if any(map(math.isnan, known)) else max(known, default=None)
