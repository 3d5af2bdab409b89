"""Makes the vertices of a drawing from what was recorded."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gradscope.analysis.folding import span
from gradscope.analysis.report import Report
from gradscope.analysis.step_view import StepView
from gradscope.recording.records import CutRecord, NodeRecord
from gradscope.report.graph.cuts import cut_label, cut_place
from gradscope.report.graph.labels import module_reach
from gradscope.report.graph.severities import Severities
from gradscope.report.graph.tensor_links import node_place, output_shape
from gradscope.report.graph.vertices import Vertex
from gradscope.report.names import shape_text


@dataclass(slots=True)
class VertexMaker:
    """Makes vertices that have no place among others yet."""

    report: Report
    view: StepView
    severities: Severities = field(init=False)

    def __post_init__(self) -> None:
        self.severities = Severities.of(self.report)

    def module(self, modules: Sequence[int], name: str, copies: int = 1) -> Vertex:
        """Return a module with all that is in it, or several that are alike."""
        rows = [self.report.modules[module] for module in modules]
        return Vertex(
            index=0,
            kind="module",
            label=rows[0].path if copies == 1 else f"{rows[0].path} … {rows[-1].path}",
            name=name,
            modules=tuple(modules),
            copies=copies,
            class_name=rows[0].class_name,
            norms=span(row.grad_norm for row in rows),
            reach=module_reach(rows[0]),
            severity=self.severities.of_modules(modules),
        )

    def parameter(self, parameters: Sequence[int]) -> Vertex:
        """Return a parameter, or the same one of several modules that are alike."""
        rows = [self.report.parameters[parameter] for parameter in parameters]
        return Vertex(
            index=0,
            kind="parameter",
            label=rows[0].name if len(rows) == 1 else f"{rows[0].name} … {rows[-1].name}",
            name=rows[0].name.rpartition(".")[2],
            parameters=tuple(parameters),
            copies=len(rows),
            detail=shape_text(rows[0]),
            norms=span(None if row.grad is None else row.grad.norm for row in rows),
            reach=rows[0].reach,
            severity=self.severities.of_parameters(parameters),
        )

    def operation(self, node: NodeRecord) -> Vertex:
        """Return an operation, or a leaf that is no parameter."""
        return Vertex(
            index=0,
            kind=node.kind,
            label=node.operation,
            detail=output_shape(node),
            place=node_place(self.view, node),
        )

    def cut(self, cut: CutRecord) -> Vertex:
        """Return the line that cuts a gradient off."""
        place = cut_place(self.view, cut)
        return Vertex(index=0, kind="cut", label=cut_label(cut), detail=place, place=place)
