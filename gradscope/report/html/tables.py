"""Tables of parameters and tensors: every row there is."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from gradscope.recording.records import GradientStat, Site
from gradscope.report.html.columns import Json, numbers, places, texts
from gradscope.report.html.picture import Picture
from gradscope.report.model import Report
from gradscope.report.names import made_by, shape_text
from gradscope.report.paths import shown_site
from gradscope.report.rows import ParameterRow

CellKind = Literal["name", "text", "place", "state", "number", "count", "share"]
"""`state` is what backward left in a parameter; `place` a line of code."""


def parameter_table(report: Report) -> Picture | None:
    """Return the table of parameters; None without any."""
    rows = report.parameters
    if not rows:
        return None
    updates = any(row.update_norm is not None for row in rows)
    columns = [
        column("parameter", "name", texts(row.name for row in rows)),
        column("state", "state", texts(_state(row) for row in rows)),
        column("shape", "text", texts(shape_text(row) for row in rows)),
        *_gradient_columns([row.grad for row in rows]),
        column("weight norm", "number", numbers(row.weight_norm for row in rows)),
        column("gradient / weight", "number", numbers(row.grad_to_weight for row in rows)),
        *(
            [column("update / weight", "number", numbers(row.update_to_weight for row in rows))]
            if updates
            else []
        ),
        column("line", "place", texts(_line(row.site, report) for row in rows)),
        column("why there is none", "text", texts(row.reason for row in rows)),
    ]
    return Picture(
        name="parameters",
        kind="table",
        title=f"Parameters ({len(rows):,})",
        caption="Click a heading to sort, a row to select its layer everywhere.",
        content={
            "name": "parameters",
            "columns": columns,
            "links": {
                "module": places(_module_places(report, (row.module for row in rows))),
                "parameter": places(row.index for row in rows),
            },
        },
    )


def tensor_table(report: Report) -> Picture | None:
    """Return the table of intermediate tensors; None without any."""
    rows = report.tensors
    if not rows:
        return None
    columns = [
        column("tensor", "text", texts(made_by(row) for row in rows)),
        column("module", "name", texts(row.module for row in rows)),
        column("call", "count", numbers(row.call for row in rows)),
        column("shape", "text", texts(shape_text(row) for row in rows)),
        *_gradient_columns([row.grad for row in rows]),
        column("depth", "count", numbers(row.depth for row in rows)),
        column("order", "count", numbers(row.order for row in rows)),
        column("line", "place", texts(_line(row.site, report) for row in rows)),
        column("why there is none", "text", texts(row.reason for row in rows)),
    ]
    return Picture(
        name="tensors",
        kind="table",
        title=f"Tensors ({len(rows):,})",
        caption="Every tensor between the parameters and the loss, in the order of the forward.",
        content={
            "name": "tensors",
            "columns": columns,
            "links": {
                "module": places(_module_places(report, (row.module for row in rows))),
                "tensor": places(range(len(rows))),
            },
        },
    )


def column(title: str, kind: CellKind, values: Json, hint: str = "") -> dict[str, Json]:
    """Return a column of a table."""
    return {"title": title, "kind": kind, "values": values, **({"hint": hint} if hint else {})}


def _gradient_columns(grads: Iterable[GradientStat | None]) -> Iterator[dict[str, Json]]:
    found = list(grads)

    def of(read: Callable[[GradientStat], float]) -> Json:
        return numbers(None if grad is None else read(grad) for grad in found)

    yield column("gradient norm", "number", of(lambda grad: grad.norm))
    yield column("largest", "number", of(lambda grad: grad.absolute_maximum), "largest magnitude")
    yield column("zero", "share", of(lambda grad: grad.zero_share), "share of exact zeros")
    yield column("NaN, inf", "count", of(lambda grad: grad.nonfinite), "non-finite elements")


def _state(row: ParameterRow) -> str:
    is_broken = row.grad is not None and row.grad.nonfinite
    return "non-finite" if is_broken else row.reach


def _line(site: Site | None, report: Report) -> str | None:
    return shown_site(site, report.target.root) or None


def _module_places(report: Report, paths: Iterable[str | None]) -> Iterator[int | None]:
    known = {alias: row.index for row in report.modules for alias in (*row.aliases, row.path)}
    return (None if path is None else known.get(path) for path in paths)
