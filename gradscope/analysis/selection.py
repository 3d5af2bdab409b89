"""Notable parts of a report: broken, missing and zero gradients, and the extremes."""

import math
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Generic, Literal, TypeVar

from gradscope.analysis.report import Report
from gradscope.analysis.rows import ModuleRow, ParameterRow, TensorRow
from gradscope.analysis.view import SortKey, ViewOptions
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.phrasing import printable

Row = TypeVar("Row", ParameterRow, TensorRow)
GroupKind = Literal["non-finite", "none", "unmeasured", "zero", "largest", "smallest"]
"""`unmeasured`: backward delivered a gradient that was not measured, or was not observed."""
_Key = Callable[[Row], tuple[float | str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Generic[Row]):
    """Rows that are notable for one reason."""

    kind: GroupKind
    rows: tuple[Row, ...]
    total: int
    """Number of matching rows; `rows` contains the first of them."""

    @property
    def title(self) -> str:
        """Common property of the rows, as text."""
        return "no gradient" if self.kind == "none" else f"{self.kind} gradient"

    @property
    def note(self) -> str | None:
        """Order of the rows, if the view does not state it."""
        return "first to last in backward" if self.kind == "non-finite" else None

    @property
    def folded(self) -> int:
        """Number of rows omitted from `rows`."""
        return self.total - len(self.rows)


def select_parameters(report: Report, view: ViewOptions) -> tuple[Group[ParameterRow], ...]:
    """Return the groups that are not empty, worst first; no row is in two of them.

    The extremes are those of the gradient norm, or of gradient over weight norm when the view sorts
    by ratio. Frozen parameters are in no group.
    """
    rows = [row for row in parameters_below(report, view) if row.reach != "frozen"]
    return _groups(rows, view, _parameter_rank(view.sort))


def select_tensors(report: Report, view: ViewOptions) -> tuple[Group[TensorRow], ...]:
    """Return the groups that are not empty, worst first; no row is in two of them.

    Where backward starts, the gradient is given, as 1: it is no extreme. Nor are scalars, and what
    is a parameter under another shape or dtype.
    """
    return _groups(
        tensors_below(report, view),
        view,
        lambda row: _norm(row) if row.is_telling else None,
    )


def parameters_below(report: Report, view: ViewOptions) -> list[ParameterRow]:
    """Return the parameters that the view's module holds under any of their names, sorted.

    Raises:
        GradscopeError: The view's module is not in the report.
    """
    module = _module(report, view)
    rows = [
        row
        for row in report.parameters
        if module is None or any(_lies_in(name, module) for name in (row.name, *row.aliases))
    ]
    # A stable sort keeps equal rows in the order of registration.
    return sorted(rows, key=parameter_key(view.sort))


def tensors_below(report: Report, view: ViewOptions) -> list[TensorRow]:
    """Return the tensors made in calls of the view's module and of those below it, sorted.

    Raises:
        GradscopeError: The view's module is not in the report.
    """
    module = _module(report, view)
    rows = [
        row
        for row in report.tensors
        if module is None or (row.module is not None and _lies_in(row.module, module))
    ]
    return sorted(rows, key=tensor_key(view.sort))


def modules_below(report: Report, view: ViewOptions) -> tuple[ModuleRow, ...]:
    """Return the view's module and those below it, in the report's order.

    Raises:
        GradscopeError: The view's module is not in the report.
    """
    module = _module(report, view)
    if module is None:
        return report.modules
    return tuple(row for row in report.modules if _lies_in(row.path, module))


def _module(report: Report, view: ViewOptions) -> str | None:
    """Return the path of the view's module as the report knows it, None for the whole model."""
    if not view.module:
        return None
    for row in report.modules:
        if view.module == row.path or view.module in row.aliases:
            return row.path
    paths = [row.path for row in report.modules if row.path]
    close = get_close_matches(view.module, paths, n=1)
    raise GradscopeError(
        f"no module `{printable(view.module)}` in {printable(report.target.model)}",
        help=f"did you mean `{printable(close[0])}`?" if close else None,
    )


def _lies_in(path: str, module: str) -> bool:
    return path == module or path.startswith(f"{module}.")


def parameter_key(sort: SortKey) -> _Key[ParameterRow]:
    """Return the sort key of parameters; `order` is the order of registration.

    Numbers descend, NaN before all and None after all.
    """
    match sort:
        case "order":
            return lambda row: (row.index,)
        case "name":
            return lambda row: (row.name,)
        case "norm":
            return lambda row: (*_descending(_norm(row)), row.index)
        case "ratio":
            return lambda row: (*_descending(row.grad_to_weight), row.index)
        case "depth":
            return lambda row: (math.inf if row.depth is None else row.depth, row.index)


def tensor_key(sort: SortKey) -> _Key[TensorRow]:
    """Return the sort key of tensors, whose `ratio` is their norm: they have no weight.

    A sort is stable: rows that are equal by it stay in the order of the forward.
    """
    match sort:
        case "order":
            # An empty key leaves the order as it is.
            return lambda row: ()
        case "name":
            return lambda row: (row.module or "", row.operation)
        case "norm" | "ratio":
            return lambda row: _descending(_norm(row))
        case "depth":
            return lambda row: (row.depth,)


def _norm(row: ParameterRow | TensorRow) -> float | None:
    return None if row.grad is None else row.grad.norm


def _descending(value: float | None) -> tuple[float, float]:
    if value is None:
        return (2.0, 0.0)
    return (0.0, 0.0) if math.isnan(value) else (1.0, -value)


def _parameter_rank(sort: SortKey) -> Callable[[ParameterRow], float | None]:
    if sort != "ratio":
        return _norm
    return lambda row: row.grad_to_weight


def _groups(
    rows: list[Row], view: ViewOptions, rank: Callable[[Row], float | None]
) -> tuple[Group[Row], ...]:
    kinds: dict[GroupKind | None, list[Row]] = {}
    for row in rows:
        kinds.setdefault(_trouble(row), []).append(row)
    ranked = sorted(
        (row for row in kinds.pop(None, []) if rank(row) is not None),
        key=lambda row: _descending(rank(row)),
    )
    # With few rows, none is listed among both the largest and the smallest.
    half = min(view.top, (len(ranked) + 1) // 2)
    kinds.get("non-finite", []).sort(key=_delivery)
    groups = [_group(kind, kinds.get(kind, []), view.top) for kind in _TROUBLES]
    smallest = ranked[max(half, len(ranked) - view.top) :][::-1]
    extremes: tuple[tuple[GroupKind, list[Row]], ...] = (
        ("largest", ranked[:half]),
        ("smallest", smallest),
    )
    for kind, chosen in extremes:
        # The rows came in the order of the view; by norm, the most extreme come first.
        shown = [row for row in rows if row in chosen] if view.sort in _PLACES else chosen
        groups.append(Group(kind=kind, rows=tuple(shown), total=len(shown)))
    return tuple(group for group in groups if group.total)


def _delivery(row: ParameterRow | TensorRow) -> float:
    """Return a row's index in backward: the first non-finite gradient is the origin."""
    position = row.order if isinstance(row, TensorRow) else row.depth
    return math.inf if position is None else position


_PLACES: tuple[SortKey, ...] = ("name", "depth")
_TROUBLES: tuple[GroupKind, ...] = ("non-finite", "none", "unmeasured", "zero")


def _trouble(row: ParameterRow | TensorRow) -> GroupKind | None:
    if row.grad is None:
        is_delivered = row.order is not None if isinstance(row, TensorRow) else row.reach != "none"
        return "unmeasured" if is_delivered else "none"
    if row.grad.is_broken or not math.isfinite(row.grad.norm):
        return "non-finite"
    return "zero" if row.grad.is_zero else None


def _group(kind: GroupKind, rows: Iterable[Row], top: int) -> Group[Row]:
    found = tuple(rows)
    return Group(kind=kind, rows=found[:top], total=len(found))
