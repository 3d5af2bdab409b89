"""What of a module's copies is the same: drawn once, for all of them."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from gradscope.analysis.report import Report
from gradscope.analysis.rows import ModuleRow
from gradscope.analysis.step_view import StepView, created
from gradscope.recording.records import NodeRecord
from gradscope.report.graph.severities import Severities
from gradscope.report.graph.tensor_links import module_of


@dataclass(slots=True)
class Contents:
    """What is each module's own."""

    report: Report
    view: StepView
    severities: Severities
    nodes: dict[int, list[NodeRecord]] = field(init=False, default_factory=dict)
    """By module: its operations, in the order of the forward."""
    parameters: dict[int, dict[str, int]] = field(init=False, default_factory=dict)
    """By module: its parameters, by their name in it."""

    def __post_init__(self) -> None:
        for node in sorted(self.view.nodes, key=created):
            home = module_of(self.view, node)
            if home is not None and node.parameter is None:
                self.nodes.setdefault(home, []).append(node)
        for record in self.view.recording.parameters:
            names = self.parameters.setdefault(record.module, {})
            names[record.name.rpartition(".")[2]] = record.index

    def mark(self, row: ModuleRow) -> Hashable:
        """Return what modules have to agree in to be drawn as one."""
        held = []
        for name, index in self.parameters.get(row.index, {}).items():
            one = self.report.parameters[index]
            state = one.grad and (one.grad.norm == 0.0, one.grad.is_broken)
            held.append((name, one.shape, one.dtype, one.reach, state))
        made = tuple((node.operation, node.kind) for node in self.nodes.get(row.index, ()))
        found = self.severities.modules.get(row.index)
        return (made, tuple(held), len(row.calls), row.grad_norm is None, found)

    def twins(
        self, copies: Mapping[int, Sequence[ModuleRow]]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Return by node and by parameter of a copy that of the module that is drawn."""
        nodes: dict[int, int] = {}
        parameters: dict[int, int] = {}
        for first, rows in copies.items():
            for row in rows[1:]:
                pairs = zip(self.nodes.get(row.index, ()), self.nodes.get(first, ()), strict=True)
                nodes.update((one.index, other.index) for one, other in pairs)
                own = self.parameters.get(first, {})
                for name, index in self.parameters.get(row.index, {}).items():
                    parameters[index] = own[name]
        return nodes, parameters
