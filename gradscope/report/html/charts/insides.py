"""The inside of each module as a graph."""

from collections.abc import Mapping

from gradscope.analysis.report import Report
from gradscope.report.graph.drawing import Drawing
from gradscope.report.graph.drawing_columns import drawing_columns
from gradscope.report.graph.module_drawings import WHOLE, module_drawings
from gradscope.report.html.page import Chart

MOST_VERTICES, FEWEST_VERTICES = 12_000, 3_000
"""Of all drawings together: about a megabyte, of which long tables take some."""


def inside_chart(report: Report) -> Chart | None:
    """Return the picture; None where the report is of no graph, as that of a training run."""
    every = module_drawings(report)
    if not every:
        return None
    drawings = _outermost(every, report)
    tensors: dict[int, int] = {}
    for position, row in enumerate(report.tensors):
        tensors.setdefault(row.node, position)
    left_out = len(every) - len(drawings)
    return Chart(
        name="inside",
        kind="graph",
        title="Module graph",
        caption="Forward runs from top to bottom; links show gradient norms. Click a module to open"
        " it, drag to move, and use Ctrl and the wheel to zoom."
        + (
            f" The graphs of {left_out:,} inner modules are omitted to keep the file small."
            if left_out
            else ""
        ),
        content=drawing_columns(drawings, tensors),
        height=560,
    )


def _outermost(drawings: Mapping[int, Drawing], report: Report) -> Mapping[int, Drawing]:
    """Return the drawings of the outermost modules, as many as there is room for, in order."""
    paths = {module.index: module.path for module in report.recording.modules}

    def depth(module: int) -> int:
        path = paths.get(module, "")
        return 0 if module == WHOLE or not path else 1 + path.count(".")

    rows = len(report.parameters) + len(report.tensors)
    kept, room = set(), max(FEWEST_VERTICES, MOST_VERTICES - rows // 3)
    for module in sorted(drawings, key=lambda module: (depth(module), module)):
        room -= len(drawings[module].vertices)
        if room < 0:
            break
        kept.add(module)
    return {module: drawing for module, drawing in drawings.items() if module in kept}
