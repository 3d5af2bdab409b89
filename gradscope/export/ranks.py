"""The ranks of a job by step, as a table and as scalars."""

from collections.abc import Iterator, Mapping

from gradscope.analysis.ranks.rank_series import rank_series
from gradscope.analysis.report import Report
from gradscope.export.table import ExportTable, Row


def _rows(report: Report) -> Iterator[Row]:
    """Yield a row for each step of each rank; none outside of a job of several."""
    for one in rank_series(report.ranks):
        losses, norms = dict(one.losses), dict(one.norms)
        for step in sorted({*losses, *norms}):
            yield (step, one.rank, losses.get(step), norms.get(step), one.is_part)


RANKS = ExportTable(
    name="ranks",
    columns=(
        ("step", "integer"),
        ("rank", "integer"),
        ("loss", "number"),
        ("grad_norm", "number"),
        ("is_part", "flag"),
    ),
    rows=_rows,
)


def rank_scalars(report: Report) -> Mapping[int, list[tuple[str, float]]]:
    """Return the loss and the gradient norm of each rank under their tags, by step."""
    found: dict[int, list[tuple[str, float]]] = {}
    for one in rank_series(report.ranks):
        for tag, values in (("rank_loss", one.losses), ("rank_grad_norm", one.norms)):
            for step, value in values:
                found.setdefault(step, []).append((f"{tag}/{one.rank}", value))
    return found
