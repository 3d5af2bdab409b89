"""Measures the part of a tensor's gradient that comes through one module call.

A residual branch and its sum use the same tensor, whose gradient is the sum of both parts. Only the
branch's own part shows its effect on the gradient.
"""

from bisect import bisect_left
from functools import partial

from torch import Tensor
from torch.utils.hooks import RemovableHandle

from gradscope.capture.reading import is_plain
from gradscope.capture.source.lines import created
from gradscope.capture.statistics import Key, Measurer
from gradscope.capture.step.graph import Graph
from gradscope.capture.step.modules import ModuleCall
from gradscope.capture.training.guard import is_interruption

_User = tuple[int, int, int]
"""A source of a tensor's gradient: sequence number, node, index of the tensor in its inputs."""


class ShareCollector:
    """Measures the parts of module inputs' gradients, if the input is used elsewhere too.

    Args:
        graph: The graph whose backward is about to run.
        calls: The module calls of its forward.
        measurer: Receives the parts, under (kind - call, index among the call's inputs).
        kind: Distinguishes these keys from others.
        faults: Receives exceptions of the hooks, which must not end the backward.
    """

    def __init__(
        self,
        graph: Graph,
        calls: list[ModuleCall],
        measurer: Measurer,
        kind: int,
        faults: list[Exception],
    ) -> None:
        self._faults = faults
        self._graph = graph
        self._calls = calls
        self._measurer = measurer
        self._kind = kind
        self._waiting: dict[Key, int] = {}
        self._sums: dict[Key, Tensor] = {}
        self._unread: set[Key] = set()
        self._handles: list[RemovableHandle] = []
        self.absent: list[Key] = []
        """Inputs that nothing in the call used."""

    def install(self) -> None:
        """Register the hooks, on the nodes that use a shared input within a call."""
        users = self._users_of_shared_tensors()
        for number, call in enumerate(self._calls):
            for position, edge in enumerate(call.inputs):
                slot = self._graph.slot_of(edge)
                if slot is not None and not self._is_used_here_alone(slot[0], call):
                    self._watch((self._kind - number, position), slot, call, users.get(slot, []))

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._sums = {}

    def _is_used_here_alone(self, node: int, call: ModuleCall) -> bool:
        """Return whether the tensor's only source of gradient was made in the call."""
        user = self._graph.first_user[node]
        if node in self._graph.met_again or user < 0:
            return False
        number = created(self._graph.nodes[user])
        return number is not None and call.start <= number < (call.end or call.start)

    def _users_of_shared_tensors(self) -> dict[Key, list[_User]]:
        """Return the users of the tensors that have several, in the order of the forward."""
        users: dict[Key, list[_User]] = {}
        graph = self._graph
        if not any(call.inputs for call in self._calls):
            return users
        for user, successors in enumerate(graph.successors):
            if any(target in graph.met_again for target, _ in successors):
                node = graph.nodes[user]
                number = created(node) or 0
                for position, (following, slot) in enumerate(node.next_functions):
                    if following is not None:
                        key = (graph.index[following], slot)
                        users.setdefault(key, []).append((number, user, position))
        for known in users.values():
            known.sort()
        return users

    def _watch(self, key: Key, slot: Key, call: ModuleCall, users: list[_User]) -> None:
        end = call.start if call.end is None else call.end
        inside = users[bisect_left(users, (call.start,)) : bisect_left(users, (end,))]
        if not inside and all(self._graph.slot_of(edge) != slot for edge in call.outputs):
            self.absent.append(key)
        if not inside or len(inside) == len(users):
            return
        self._waiting[key] = len(inside)
        for _, user, position in inside:
            hook = partial(self._arrive, key, position)
            self._handles.append(self._graph.nodes[user].register_hook(hook))

    def _arrive(
        self,
        key: Key,
        position: int,
        input_gradients: tuple[Tensor | None, ...],
        _: tuple[Tensor | None, ...],
    ) -> None:
        try:
            self._add(key, input_gradients[position])
        except Exception as error:
            self._faults.append(error)
            if is_interruption(error):
                raise
        self._count_down(key)

    def _add(self, key: Key, part: Tensor | None) -> None:
        if part is None or key in self._unread:
            return
        if is_plain(part):
            known = self._sums.get(key)
            self._sums[key] = part.detach() if known is None else known + part.detach()
        else:  # the sum of subclasses may do anything, for sharded tensors a collective
            self._sums.pop(key, None)
            self._unread.add(key)

    def _count_down(self, key: Key) -> None:
        self._waiting[key] -= 1
        if not self._waiting[key] and key in self._sums:
            self._measurer.add(key, self._sums.pop(key))
