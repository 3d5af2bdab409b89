"""The tensors that lead from node to node of a graph, and the lines that cut gradients off."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from gradscope.analysis.norms import total_norm
from gradscope.analysis.recording_index import StepView, created
from gradscope.analysis.report import Report
from gradscope.analysis.view import shown_site
from gradscope.recording.cut_record import CutRecord
from gradscope.recording.records import NodeRecord, TensorRef

SCISSORS = "✂"


def cuts_of(view: StepView) -> tuple[CutRecord, ...]:
    """Return the cuts in a step's forward."""
    graph = view.step.graph if view.step else None
    return tuple(cut for cut in view.recording.cuts if cut.graph == graph)


def cut_call(cut: CutRecord) -> str:
    """Return the call that cuts, as `detach()`."""
    if cut.operation == "checkpoint":
        return "checkpoint(use_reentrant=True)"
    call = ".data" if cut.operation == "data" else f"{cut.operation}()"
    call += " under no_grad" if cut.kind == "no-grad" else ""
    return call if cut.count == 1 else f"{call}, {cut.count:,} calls,"


def cut_label(cut: CutRecord) -> str:
    """Return the call that cuts, after a scissors sign."""
    return f"{SCISSORS} {cut_call(cut)}".removesuffix(",")


def cut_location(view: StepView, cut: CutRecord) -> str:
    """Return the line that cuts; empty if unknown."""
    site = None if cut.site is None else view.recording.sites[cut.site]
    return shown_site(site, view.recording.target.root)


def cut_module(view: StepView, cut: CutRecord) -> int | None:
    """Return the module in whose call the gradient is cut off; None outside of all."""
    return None if cut.call is None else view.recording.calls[cut.call].module


def module_of(view: StepView, node: NodeRecord) -> int | None:
    """Return the module a node belongs to: whose call made it, or that owns the parameter."""
    if node.parameter is not None:
        return view.recording.parameters[node.parameter].module
    return None if node.module_call is None else view.recording.calls[node.module_call].module


def node_location(view: StepView, node: NodeRecord) -> str:
    """Return the line that made a node, as `file:line`; empty if unknown."""
    site = None if node.site is None else view.recording.sites[node.site]
    return shown_site(site, view.recording.target.root)


def output_shape(node: NodeRecord) -> str:
    """Return shape and dtype of a node's output; for several outputs, each."""
    return ", ".join(
        f"{shape.dtype}[{', '.join(map(str, shape.dims))}]" for shape in node.outputs if shape
    )


@dataclass(slots=True)
class TensorLinks:
    """The links of a step's graph, in the direction of the forward."""

    report: Report
    view: StepView
    forward: dict[int, list[TensorRef]] = field(init=False, default_factory=dict)
    """By node: the tensors it was made from."""
    consumers: dict[int, list[int]] = field(init=False, default_factory=dict)
    """By node: the nodes that were made from it."""

    def __post_init__(self) -> None:
        for edge in self.view.recording.edges:
            ref = TensorRef(node=edge.target, slot=edge.slot)
            self.forward.setdefault(edge.source, []).append(ref)
            self.consumers.setdefault(edge.target, []).append(edge.source)

    def in_order(self) -> list[NodeRecord]:
        """Return the nodes in the order of the forward, each leaf before what used it first."""
        nodes = self.view.recording.nodes

        def key(node: NodeRecord) -> tuple[int, bool, int]:
            users = self.consumers.get(node.index, ()) if node.sequence is None else ()
            first = min((created(nodes[user]) for user in users), default=created(node))
            return (first, node.sequence is not None, -node.depth)

        return sorted(self.view.nodes, key=key)

    def between(self, is_passed: Callable[[NodeRecord], bool]) -> Iterator[tuple[TensorRef, int]]:
        """Yield tensors and the nodes that they lead to.

        Args:
            is_passed: Which nodes are passed over, so that what leads to them leads on.
        """
        for node in self.view.nodes:
            if not is_passed(node):
                for ref in self.forward.get(node.index, ()):
                    yield from ((end, node.index) for end in self._ends(ref, is_passed))

    def _ends(self, ref: TensorRef, is_passed: Callable[[NodeRecord], bool]) -> Iterator[TensorRef]:
        """Yield the tensors that the nodes passed over lead to, or the reference itself."""
        pending = [ref]
        while pending:
            current = pending.pop()
            further = self.forward.get(current.node)
            if further is not None and is_passed(self.view.recording.nodes[current.node]):
                pending.extend(further)
            else:
                yield current

    def users(self, node: int, is_passed: Callable[[NodeRecord], bool]) -> tuple[int, ...]:
        """Return the node, or if it is skipped, the nodes that its gradient comes from."""
        pending, found = [node], dict[int, None]()
        while pending:
            current = pending.pop()
            if is_passed(self.view.recording.nodes[current]):
                pending.extend(self.consumers.get(current, ()))
            else:
                found[current] = None
        return tuple(found)

    def norm(self, refs: Iterable[TensorRef]) -> float | None:
        """Return the total norm of the gradients with respect to tensors, each once."""
        return total_norm(self._norms(dict.fromkeys(map(self.view.measured, refs))))

    def _norms(self, refs: Iterable[TensorRef]) -> Iterator[float]:
        for ref in refs:
            stat = self.view.tensor_stats.get(ref)
            parameter = self.view.recording.nodes[ref.node].parameter
            gradient = stat.gradient if stat else None
            # The gradient of a parameter is measured with the parameter, and not as a tensor's.
            if parameter is not None:
                gradient = self.report.parameters[parameter].grad
            if gradient is not None:
                yield gradient.norm
