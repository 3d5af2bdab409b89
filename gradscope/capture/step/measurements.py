"""Measures the gradients of one backward with hooks, in whole and by module call."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor
from torch._C import DisableTorchFunction
from torch.autograd.function import BackwardCFunction
from torch.utils.hooks import RemovableHandle

from gradscope.capture.reading import gradient_of, is_plain
from gradscope.capture.statistics import HELD_ELEMENTS, Key, Measurer, Numbers, norms
from gradscope.capture.step.graph import Graph
from gradscope.capture.step.modules import ModuleCall
from gradscope.capture.training.guard import is_interruption, without_dispatch_modes
from gradscope.garbage import no_garbage_collection
from gradscope.recording.records import GradientStat

Slot = tuple[int, int]
"""A tensor of the graph: (node, output slot)."""


class _Hooks:
    """Hooks of one backward. Their own exceptions are noted and do not end it."""

    def __init__(self, faults: list[Exception]) -> None:
        self._faults = faults
        self._handles: list[RemovableHandle] = []

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _note(self, error: Exception) -> None:
        self._faults.append(error)
        # An exception that leaves a hook ends the backward of the script.
        if is_interruption(error):
            raise error


class GradientCollector(_Hooks):
    """Measures the gradient with respect to every distinct tensor of a graph.

    A prehook of a node gets the gradients with respect to the node's outputs, summed over all their
    uses. It is the only kind of hook that sees functional and in-place operations and outputs in
    any container, and that leaves gradients bit-identical.

    Args:
        graph: The graph whose backward is about to run.
        skip: Nodes without a hook: views, and leaves whose gradient is read after backward.
        measurer: Receives the gradients, with their `Slot` as key.
        faults: Receives exceptions of the hooks.
    """

    def __init__(
        self, graph: Graph, skip: set[int], measurer: Measurer, faults: list[Exception]
    ) -> None:
        super().__init__(faults)
        self._graph, self._skip, self._measurer = graph, skip, measurer
        self.arrived: list[Slot] = []
        """Tensors in the order in which their gradients were delivered."""

    def install(self) -> None:
        """Register the hooks."""
        self._handles = [
            # A prehook gets the gradients that the engine has summed over all uses of an
            # output. A hook on a tensor stays with the value before a later in-place write.
            node.register_prehook(
                partial(self._arrive_at_custom, number)
                if isinstance(node, BackwardCFunction)
                else partial(self._arrive, number)
            )
            for number, node in enumerate(self._graph.nodes)
            if number not in self._skip
        ]

    def _arrive_at_custom(self, number: int, gradients: tuple[Tensor | None, ...]) -> None:
        # The engine passes its own buffers: no copy is made before the node runs.
        # The backward of a custom function may write into the gradients that it gets.
        try:
            copies = tuple(map(_copied, gradients))
        except Exception as error:  # noqa: BLE001 - the script must not suffer from it
            self._note(error)
        else:
            self._arrive(number, copies)

    def _arrive(self, number: int, gradients: tuple[Tensor | None, ...]) -> None:
        slot = 0
        try:
            for gradient in gradients:
                # None for an output that the loss does not depend on.
                if gradient is not None:
                    key = (number, slot)
                    self.arrived.append(key)
                    self._measurer.add(key, gradient)
                slot += 1  # enumerate is slower, and this runs for every node
        except Exception as error:  # noqa: BLE001 - the script must not suffer from it
            self._note(error)


def _copied(gradient: Tensor | None) -> Tensor | None:
    """Return a copy of a small, readable gradient, otherwise the gradient itself."""
    if gradient is None or gradient.numel() > HELD_ELEMENTS or not is_plain(gradient):
        return gradient
    with DisableTorchFunction(), without_dispatch_modes():
        return gradient.clone()


_User = tuple[int, int, int]
"""A source of a tensor's gradient: sequence number, node, index of the tensor in its inputs."""


class ShareCollector(_Hooks):
    """Measures the parts of module inputs' gradients, if the input is used elsewhere too.

    Args:
        graph: The graph whose backward is about to run.
        calls: The module calls of its forward.
        measurer: Receives the parts, under (kind - call, index among the call's inputs).
        kind: Distinguishes these keys from others.
        faults: Receives exceptions of the hooks.
    """

    def __init__(
        self,
        graph: Graph,
        calls: list[ModuleCall],
        measurer: Measurer,
        kind: int,
        faults: list[Exception],
    ) -> None:
        super().__init__(faults)
        self._graph, self._calls = graph, calls
        self._measurer, self._kind = measurer, kind
        self._waiting: dict[Key, int] = {}
        self._sums: dict[Key, Tensor] = {}
        self._unread: set[Key] = set()
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
        """Remove the hooks and what they hold."""
        super().remove()
        self._sums = {}

    def _is_used_here_alone(self, node: int, call: ModuleCall) -> bool:
        """Return whether the tensor's only source of gradient was made in the call."""
        user = self._graph.first_user[node]
        if node in self._graph.met_again or user < 0:
            return False
        number = self._graph.numbers[user]
        return number is not None and call.start <= number < (call.end or call.start)

    def _users_of_shared_tensors(self) -> dict[Key, list[_User]]:
        """Return the users of the tensors that have several, in the order of the forward."""
        users: dict[Key, list[_User]] = {}
        graph, shared = self._graph, self._graph.met_again
        if not shared or not any(call.inputs for call in self._calls):
            return users
        for user, successors in enumerate(graph.successors):
            if any(target in shared for target, _ in successors):
                node = graph.nodes[user]
                number = graph.numbers[user] or 0
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
        except Exception as error:  # noqa: BLE001 - the script must not suffer from it
            self._note(error)
        self._count_down(key)

    def _add(self, key: Key, part: Tensor | None) -> None:
        if part is None or key in self._unread:
            return
        if is_plain(part):
            known = self._sums.get(key)
            with DisableTorchFunction(), without_dispatch_modes():
                self._sums[key] = part.detach() if known is None else known + part.detach()
        else:  # the sum of subclasses may do anything, for sharded tensors a collective
            self._sums.pop(key, None)
            self._unread.add(key)

    def _count_down(self, key: Key) -> None:
        self._waiting[key] -= 1
        if not self._waiting[key] and key in self._sums:
            self._measurer.add(key, self._sums.pop(key))


_PARAMETER, _WEIGHT, _SHARE = -1, -2, -3
"""First parts of measurer keys that are no tensors of the graph. A single measurer receives
everything, so that an accelerator is read back once. For parts of inputs, the call index is
subtracted."""


@dataclass(slots=True)
class Measurements:
    """The measured gradients of one backward."""

    numbers: Numbers
    arrived: list[Slot]
    """Tensors in the order in which their gradients were delivered."""
    incoming: dict[int, Slot]
    """By index of the parameter: the slot where its gradient was measured before accumulation."""
    weights: list[float | None]
    """Norm of each parameter, None if it is unreadable."""
    reached: set[int]
    """Indices of the parameters that backward reached."""
    absent: list[Slot]
    """Keys of shares, as in `numbers`, for inputs that their call did not use."""
    unmeasured: dict[Slot, str]
    """Why a delivered gradient has no statistics."""

    def tensor(self, slot: Slot) -> GradientStat | None:
        """Return statistics of the gradient with respect to output `slot[1]` of node `slot[0]`."""
        return self.numbers.get(slot)

    def parameter(self, position: int) -> GradientStat | None:
        """Return the statistics of a parameter's gradient, None if it has none."""
        left = self.numbers.get((_PARAMETER, position))
        slot = self.incoming.get(position)
        return self.numbers.get(slot) if left is None and slot is not None else left

    def has_gradient(self, position: int) -> bool:
        """Return whether a parameter's gradient was measured."""
        return (_PARAMETER, position) in self.numbers or position in self.incoming

    def brief_parameters(self) -> tuple[GradientStat | None, ...]:
        """Return the statistics of every parameter's gradient, without the histograms."""
        brief = self.numbers.without_histogram
        return tuple(
            brief((_PARAMETER, position))
            or (brief(self.incoming[position]) if position in self.incoming else None)
            for position in range(len(self.weights))
        )

    def why_unmeasured(self, position: int) -> str | None:
        """Return why a parameter's gradient has no statistics, None if it has."""
        return self.unmeasured.get((_PARAMETER, position))

    def shares(self) -> Iterator[tuple[int, int, float | None]]:
        """Yield the norms of the parts of inputs' gradients that came through one module call.

        Each has the call and the index among its inputs, for inputs that are used elsewhere too.
        The norm is None if the call did not use the input.
        """
        for kind, position in self.numbers:
            if kind <= _SHARE:
                yield _SHARE - kind, position, self.numbers[kind, position].norm
        for kind, position in self.absent:
            yield _SHARE - kind, position, None


class BackwardWatch:
    """Measures the gradients of one backward, from its construction to `remove`.

    Args:
        parameters: The parameters to measure.
        graph: The graph of the backward.
        nodes: Its `AccumulateGrad` nodes by index of their parameter.
        calls: The calls of modules in the forward.
        alone: Measure what the backward adds to existing gradients, not their sum.
        magnitudes: Also sort samples of the gradients' elements by magnitude.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        graph: Graph,
        nodes: Mapping[int, int],
        calls: list[ModuleCall],
        *,
        alone: bool,
        magnitudes: bool,
    ) -> None:
        self._parameters, self._nodes = parameters, nodes
        self._before = self._gradient_versions()
        # A parameter's gradient is read from `.grad` after backward, unless a user's hook may have
        # removed it by then, or it contains more than this backward added.
        self._added = {position for position in self._nodes if alone and position in self._before}
        # Optimizers that step in such a hook set the gradient to None before backward ends.
        # A post-accumulate hook runs after `AccumulateGrad` has written `.grad`.
        hooked = {p for p in self._nodes if self._parameters[p]._post_accumulate_grad_hooks}
        skip = set(graph.shared_gradients())
        skip.update(n for p, n in self._nodes.items() if p not in hooked | self._added)
        self._measurer = Measurer(magnitudes=magnitudes)
        self._faults: list[Exception] = []
        self._collector = GradientCollector(graph, skip, self._measurer, self._faults)
        self._shares = ShareCollector(graph, calls, self._measurer, _SHARE, self._faults)
        self._collector.install()
        self._shares.install()

    @property
    def arrived(self) -> list[Slot]:
        """Tensors in the order in which their gradients were delivered."""
        return self._collector.arrived

    def remove(self) -> None:
        """Remove the hooks."""
        self._collector.remove()
        self._shares.remove()

    def _gradient_versions(self) -> dict[int, tuple[int, int]]:
        """Return, by parameter index, the versions that show whether a gradient was added to."""
        return {
            # Accumulation makes a new tensor or writes in place, which increments the version.
            position: (id(gradient), gradient._version)
            for position, parameter in enumerate(self._parameters)
            if (gradient := gradient_of(parameter)) is not None
        }

    @no_garbage_collection()
    def measurements(self) -> Measurements:
        """Return the gradients that the finished backward delivered.

        Raises:
            Exception: gradscope's own, which a hook kept from ending the backward.
        """
        if self._faults:
            raise self._faults[0]
        # Under a reentrant checkpoint, parameters get gradients without being part of the graph.
        # Its nested backward has a graph of its own, so only versions show these gradients.
        after, before = self._gradient_versions(), self._before
        added = (position for position, version in after.items() if before.get(position) != version)
        reached = {*self._nodes, *added}
        measurer, here = self._measurer, []
        for position, parameter in enumerate(self._parameters):
            is_added = position in self._added
            gradient = gradient_of(parameter) if position in reached else None
            if gradient is not None and not is_added:
                measurer.add((_PARAMETER, position), gradient)
            elif position in reached and not parameter.numel():
                measurer.unmeasured[_PARAMETER, position] = (
                    "none of its elements are in this process"
                )
            # One `norms` call for the CPU, and one transfer for everything on accelerators.
            if parameter.is_cpu:
                here.append(position)
            else:
                measurer.add((_WEIGHT, position), parameter)
        numbers = measurer.results()
        weights = dict(
            zip(here, norms([self._parameters[position] for position in here]), strict=True)
        )
        for position in range(len(self._parameters)):
            if position not in weights:
                weight = numbers.get((_WEIGHT, position))
                weights[position] = None if weight is None else weight.norm
        slots, counts = set(self.arrived), Counter(self._nodes.values())
        # FSDP1 gives many parameters one flat leaf: its gradient is of none of them alone.
        alone = {p: node for p, node in self._nodes.items() if counts[node] == 1}
        return Measurements(
            numbers=numbers,
            arrived=self.arrived,
            incoming={p: (node, 0) for p, node in alone.items() if (node, 0) in slots},
            weights=[weights[position] for position in range(len(self._parameters))],
            reached=reached,
            absent=self._shares.absent,
            unmeasured={k: why for k, why in measurer.unmeasured.items() if k[0] != _WEIGHT},
        )
