"""The modules of a report as columns: what every picture of a sheet refers to."""

from gradscope.analysis.report import Report
from gradscope.report.html.columns import Json, numbers, places, texts


def module_columns(report: Report) -> dict[str, Json]:
    """Return a column for each thing that pictures want to know of modules.

    `parent` is the place of the parent's row, `found` the places of the findings that are about it,
    by place in the sheet's cards.
    """
    rows = report.modules
    return {
        "path": texts(row.path for row in rows),
        "class": texts(row.class_name for row in rows),
        "parent": places(row.parent for row in rows),
        "parameters": numbers(row.parameters for row in rows),
        "numel": numbers(row.numel for row in rows),
        "norm": numbers(row.grad_norm for row in rows),
        "weight": numbers(row.weight_norm for row in rows),
        "gain": numbers(next((call.gain for call in row.calls), None) for row in rows),
    }
