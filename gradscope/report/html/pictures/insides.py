"""The inside of each module as a graph."""

from gradscope.report.graph.drawing_columns import drawing_columns
from gradscope.report.graph.module_drawings import module_drawings
from gradscope.report.html.picture import Picture
from gradscope.report.model import Report


def inside_picture(report: Report) -> Picture | None:
    """Return the picture; None where the report is of no graph, as that of a training run."""
    drawings = module_drawings(report)
    if not drawings:
        return None
    tensors: dict[int, int] = {}
    for place, row in enumerate(report.tensors):
        tensors.setdefault(row.node, place)
    return Picture(
        name="inside",
        kind="graph",
        title="Inside of a module",
        caption="The forward runs from top to bottom; a link has the norm of the gradient that"
        " backward brings back along it. A click on a module opens it.",
        content=drawing_columns(drawings, tensors),
        height=560,
    )
