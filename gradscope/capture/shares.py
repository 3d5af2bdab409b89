"""What part of a tensor's gradient comes through one module call.

A residual branch and the sum it is added to use the same tensor, whose gradient is the sum of what
both hand back. What the branch did to the gradient is told by its own part alone.
"""

from functools import partial

from torch import Tensor
from torch.utils.hooks import RemovableHandle

from gradscope.capture.graph import Graph
from gradscope.capture.modules import ModuleCall
from gradscope.capture.statistics import Key, Measurer

_User = tuple[int, int]
"""A node that hands a tensor a gradient, and which of its inputs the tensor is."""


class ShareCollector:
    """Measures the parts of module inputs' gradients, where the input is used elsewhere too.

    Args:
        graph: The graph whose backward is about to run.
        calls: The module calls of its forward.
        measurer: Takes the parts, under (kind - call, place among the call's inputs).
        kind: What tells these keys from others.
    """

    def __init__(
        self, graph: Graph, calls: list[ModuleCall], measurer: Measurer, kind: int
    ) -> None:
        self._graph = graph
        self._calls = calls
        self._measurer = measurer
        self._kind = kind
        self._waiting: dict[Key, int] = {}
        self._sums: dict[Key, Tensor] = {}
        self._handles: list[RemovableHandle] = []

    def install(self) -> None:
        """Register the hooks: on the nodes that use a shared input within a call."""
        users = self._users_of_shared_tensors()
        leaves = {id(leaf): node for node, leaf in self._graph.leaves.items()}
        for number, call in enumerate(self._calls):
            for place, edge in enumerate(call.inputs):
                node = self._graph.index.get(edge.node) if edge.node else leaves.get(id(edge.leaf))
                if node in self._graph.met_again:
                    self._watch(
                        (self._kind - number, place), call, users.get((node, edge.slot), [])
                    )

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._sums = {}

    def _users_of_shared_tensors(self) -> dict[Key, list[_User]]:
        users: dict[Key, list[_User]] = {}
        graph = self._graph
        if not any(call.inputs for call in self._calls):
            return users
        for number, successors in enumerate(graph.successors):
            if any(target in graph.met_again for target, _ in successors):
                for place, (following, slot) in enumerate(graph.nodes[number].next_functions):
                    if following is not None:
                        users.setdefault((graph.index[following], slot), []).append((number, place))
        return users

    def _watch(self, key: Key, call: ModuleCall, users: list[_User]) -> None:
        end = call.start if call.end is None else call.end
        nodes = self._graph.nodes
        inside = [user for user in users if call.start <= nodes[user[0]]._sequence_nr() < end]
        if not inside or len(inside) == len(users):
            return
        self._waiting[key] = len(inside)
        for number, place in inside:
            self._handles.append(nodes[number].register_hook(partial(self._arrive, key, place)))

    def _arrive(
        self,
        key: Key,
        place: int,
        input_gradients: tuple[Tensor | None, ...],
        _: tuple[Tensor | None, ...],
    ) -> None:
        part = input_gradients[place]
        if part is not None:
            known = self._sums.get(key)
            self._sums[key] = part.detach() if known is None else known + part.detach()
        self._waiting[key] -= 1
        if not self._waiting[key] and key in self._sums:
            self._measurer.add(key, self._sums.pop(key))
