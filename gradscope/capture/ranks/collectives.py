"""Observes the collectives that a script itself starts, and their results in a loss."""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.autograd.graph import Node
from torch.distributed import distributed_c10d
from torch.optim import Optimizer

from gradscope.capture.compiler import is_traced
from gradscope.capture.observed_calls import argument
from gradscope.capture.ranks.collective_calls import AutogradCollectives, CollectiveLines
from gradscope.capture.ranks.gather_flow import detaches, gather_reaches_loss
from gradscope.capture.ranks.observations import RankLog, holds_all, norm_now, share_of
from gradscope.capture.source.lines import created
from gradscope.capture.statistics import norms
from gradscope.capture.tensor_references import WeakTensor
from gradscope.capture.training.graph_facts import contains
from gradscope.capture.training.guard import Function, Patches
from gradscope.capture.training.optimizers import parameters_of
from gradscope.capture.training.state import TrainingState
from gradscope.target import members

_FIRST_SUMS, _MOST_SUMS = 16, 8
"""Number of first steps of which summed numbers are recorded, and their maximum in a step."""

_IN_PLACE = ("all_reduce", "reduce", "broadcast", "all_reduce_coalesced")

_EXCHANGES = ("all_to_all", "all_to_all_single")

_INTO = ("all_gather", "all_gather_into_tensor", "reduce_scatter_tensor", "gather", *_EXCHANGES)

_MEASURED = (*_IN_PLACE, "reduce_scatter_tensor")
"""Collectives after which the first argument may hold reduced gradients."""


@dataclass(slots=True)
class Window:
    """The collectives since the last step."""

    gradients: set[int] = field(default_factory=set)
    """`id`s of the parameters whose gradients the script reduced."""
    is_flat: bool = False
    """Whether the script ran a collective on a tensor that may hold several gradients."""
    has_backward: bool = False
    last: tuple[int | None, int, float | None, str] | None = None
    """Line of the last reduction, `id` of the parameter or size of a flat tensor, norm, operation.
    """

    is_scattered: bool = False
    """Whether the last reduction gave each rank a slice."""

    sums: dict[int, tuple[WeakTensor[Tensor], int, int]] = field(default_factory=dict)
    """By address of a tensor that was summed over the ranks: the tensor, its version and the number
    of backwards."""

    late: dict[int, int | None] = field(default_factory=dict)
    """By `id` of a parameter to whose gradient a backward has added after its reduction: the line
    of the backward."""

    @property
    def is_by_hand(self) -> bool:
        """Whether the script may have reduced gradients itself."""
        return bool(self.gradients) or self.is_flat


class Collectives:
    """Observes collectives on gradients, on tensors with history, and gathers of such tensors.

    Args:
        training: State of the training.
        log: Receives what is observed.
    """

    def __init__(self, training: TrainingState, log: RankLog) -> None:
        self._training, self._log = training, log
        self._lines = CollectiveLines(training, log)
        self._functions = AutogradCollectives(training, log)
        self.window = Window()
        self._backwards = 0
        self._gradients: dict[int, int] | None = None
        """By address of a gradient: `id` of its parameter; None if out of date."""
        self._positions: dict[int, int] = {}
        """By `id` of a parameter with a gradient: index of its entry."""
        self._weights: tuple[object, frozenset[int]] = (None, frozenset())
        """When they were read, and addresses of all parameters."""
        self._buffers: tuple[int, frozenset[int]] = (-1, frozenset())
        """A step, and addresses of the buffers in it."""
        self._versions: dict[int, int] = {}
        """By `id` of a parameter: version of its reduced gradient when the backward began."""
        self._late_line: int | None = None
        """Line of the last backward that added to reduced gradients."""
        self._waiting: dict[int, tuple[int | None, bool, str]] = {}
        """By sequence number of a node whose value a collective changed: its line, whether it is a
        single number, and the collective."""
        self._summed: list[tuple[int | None, Tensor]] = []
        """Line and tensor of the single numbers that were summed over the ranks since the last
        step, such as a number of tokens."""

    @property
    def is_on(self) -> bool:
        """Whether the process group is ready."""
        return self._lines.is_on

    def begin(self, patches: Patches | None) -> None:
        """Start recording: the process group is ready."""
        self._lines.is_on = True
        if patches is not None:
            self._lines.observe_tensors(patches)
            self._functions.install(patches)

    def stop(self) -> None:
        """Stop recording."""
        self._lines.is_on = False

    def install(self, patches: Patches) -> None:
        """Start observing."""
        self._lines.install(patches)
        for name in (*_IN_PLACE, *_INTO):
            if name in vars(distributed_c10d):
                patches.wrap(distributed_c10d, name, self._wrapper(name))
                # `torch.distributed` re-exports the functions: scripts call either name.
                if name in vars(dist):
                    patches.put(dist, name, vars(distributed_c10d)[name])

    def _wrapper(self, name: str) -> Callable[[Function], Function]:
        def wrap(original: Function) -> Function:
            def collective(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
                frame = sys._getframe(1)
                guard = self._training.guard
                # Collectives that torch's wrappers start, such as those of DDP, are not the
                # script's.
                if not self.is_on or is_traced() or not guard.active:
                    return original(*args, **kwargs)
                if _is_torchs(frame):
                    guard.glance(self._functions.runs, name, frame)
                    return original(*args, **kwargs)
                guard.run(self._before, name, args, kwargs, frame)
                result = original(*args, **kwargs)
                # With `async_op`, a handle comes back and the tensor is not reduced yet.
                if self.window.last is not None and name in _MEASURED and result is None:
                    guard.run(self._after, args, kwargs)
                return result

            return collective

        return wrap

    def _before(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
    ) -> None:
        if self._lines.is_new(frame):
            self._lines.begins(name, frame)
        if name in _INTO:
            self._into(name, args, kwargs, frame)
            return
        given = args[0] if args else kwargs.get("tensor", kwargs.get("tensors"))
        several = given if isinstance(given, list | tuple) else (given,)
        for tensor in several:
            if isinstance(tensor, Tensor):
                operation = args[1] if len(args) > 1 else kwargs.get("op", "SUM")
                # The text of `ReduceOp.SUM` is `RedOpType.SUM`.
                operation = str(operation).rpartition(".")[2]
                self._changed(name, tensor, operation, frame)
                if name == "all_reduce" and operation == "SUM" and tensor.numel() == 1:
                    self._sums(tensor, argument(args, kwargs, 2, "group"), frame)

    def _into(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
    ) -> None:
        """Note a collective that writes to another tensor than it reads."""
        names = ("tensor", "input_tensor", "input")
        by_name = (kwargs[one] for one in names if one in kwargs)
        given = args[1] if len(args) > 1 else next(by_name, None)
        if name in _EXCHANGES:
            self._functions.exchanges(given, frame)
        if name == "reduce_scatter_tensor":
            output = argument(args, kwargs, 0, "output")
            operation = args[2] if len(args) > 2 else kwargs.get("op", "SUM")
            self._scattered(output, given, str(operation).rpartition(".")[2], frame)
        if name != "all_to_all_single":
            self._gathered(name, given, frame)

    def _scattered(self, output: object, given: object, operation: str, frame: FrameType) -> None:
        """Note a reduction that gives each rank a slice of the gradients, if it gets them whole."""
        if not isinstance(output, Tensor) or not isinstance(given, Tensor) or given.grad_fn:
            return
        if not self.window.has_backward or self._log.step >= _FIRST_SUMS:
            return
        entries = self._training.gradient_state.entries
        parameters = (one for entry in entries if (one := entry.parameter()) is not None)
        if holds_all(given, output, parameters):
            self.window.last = (self._site(frame), output.numel(), None, operation)
            self.window.is_scattered = True

    def _sums(self, tensor: Tensor, group: Any, frame: FrameType) -> None:  # noqa: ANN401
        """Keep a number that all ranks sum until the step reads it."""
        is_of_all = group is None or dist.get_world_size(group) == dist.get_world_size()
        if is_of_all and not tensor.requires_grad and len(self._summed) < _MOST_SUMS:
            self._summed.append((self._site(frame), tensor))

    def _gathered(self, name: str, given: object, frame: FrameType) -> None:
        tensor = given[0] if isinstance(given, list | tuple) and given else given
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            return
        location = self._training.locations.of(frame)
        is_detached = not tensor.requires_grad and detaches(location, frame)
        if tensor.requires_grad or is_detached:
            reach = gather_reaches_loss(location)
            numbers = {"reaches": reach.loss, "replaced": reach.own, "detached": is_detached}
            flags = {key: float(value) for key, value in numbers.items()}
            self._log.note("gathered", self._log.site(location), name, flags)

    def _sums_again(self, tensor: Tensor, frame: FrameType) -> None:
        """Note a second sum of a gradient, to which nothing but a backward was added since."""
        known = self.window.sums.get(_address(tensor))
        # Another tensor may have been given the address since.
        is_later = known is not None and known[0]() is tensor and known[2] < self._backwards
        # A division, or a gradient set to zero, would have changed it as well.
        if known is not None and is_later and tensor._version == known[1] + 1:
            self._log.note("summed-again", self._site(frame), "")
        self.window.sums[_address(tensor)] = (WeakTensor(tensor), tensor._version, self._backwards)

    def _changed(self, name: str, tensor: Tensor, operation: str, frame: FrameType) -> None:
        """Note a collective that changes a tensor in place."""
        node = tensor.grad_fn
        is_sum = name == "all_reduce" and operation == "SUM" and node is None
        if is_sum and tensor.numel() > 1 and tensor.is_floating_point():
            self._sums_again(tensor, frame)
        if node is not None and (number := created(node)) is not None:
            # A number and no node: a node would keep the memory of the forward alive.
            self._waiting[number] = (self._site(frame), tensor.numel() == 1, name)
        elif not tensor.is_floating_point() or tensor.numel() == 1:
            return
        elif self._is_weight(tensor):
            self._log.note("weight-reduced", self._site(frame), name)
        elif self._is_buffer(tensor):
            self._log.note("buffer-reduced", self._site(frame), name)
        elif name != "broadcast":
            if self.window.has_backward:
                self._reduced(name, tensor, operation, frame)
            else:
                self._log.note("reduced-too-early", self._site(frame), name)

    def _reduced(self, name: str, tensor: Tensor, operation: str, frame: FrameType) -> None:
        """Note a reduction of a gradient, or of a tensor that may hold several."""
        site = self._site(frame)
        if self._gradients is None:
            found = list(_addresses(self._training))
            self._gradients = {address: key for address, key, _ in found}
            self._positions = {key: position for _, key, position in found}
        # By address, because scripts often reduce `p.grad.data`, another object in the same memory.
        owner = self._gradients.get(_address(tensor))
        if owner is None:
            self.window.is_flat = True
            self._log.note("flat-reduced", site, f"{name} {operation}")
            self.window.last = (site, tensor.numel(), None, operation)
            return
        if self._training.gradient_state.entries[self._positions[owner]].clipped:
            self._log.note("clipped-before", site, name)
        self.window.gradients.add(owner)
        self.window.late.pop(owner, None)
        self._log.note("gradient-reduced", site, f"{name} {operation}")
        self.window.last = (site, owner, None, operation)

    def _site(self, frame: FrameType) -> int | None:
        return self._log.site(self._training.locations.of(frame))

    def _is_weight(self, tensor: Tensor) -> bool:
        entries = self._training.gradient_state.entries
        now = (len(entries), self._backwards, self._log.step)  # `.data` may get other memory
        if self._weights[0] != now:
            alive = (one for entry in entries if (one := entry.parameter()) is not None)
            self._weights = (now, frozenset(map(_address, alive)))
        # All tensors without memory of their own have the address 0.
        return _address(tensor) in self._weights[1] - {0}

    def _is_buffer(self, tensor: Tensor) -> bool:
        if self._buffers[0] != self._log.step:
            models = self._training.models.modules
            found = (one for model in models for _, one in members.own_buffers(model))
            self._buffers = (self._log.step, frozenset(map(_address, found)))
        return _address(tensor) in self._buffers[1] - {0}

    def _after(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Measure a gradient after its reduction."""
        tensor = argument(args, kwargs, 0, "tensor")
        last = self.window.last
        if last is None or not isinstance(tensor, Tensor):
            return
        if self.window.is_scattered and tensor.numel() == last[1] and last[2] is None:
            self.window.last = (last[0], last[1], norms([tensor])[0], last[3])
            return
        if self._gradients is None:
            return
        # A flat tensor has no owner, and is known by its size alone.
        if self._gradients.get(_address(tensor), tensor.numel()) == last[1]:
            self.window.last = (last[0], last[1], norms([tensor])[0], last[3])

    def backward_begins(self, root: object) -> None:
        """Look for values in a loss that a collective changed."""
        self._backwards += 1
        self._functions.backward_begins()
        self._versions = dict(self._reduced_versions())
        waiting, self._waiting = self._waiting, {}
        if not waiting or not isinstance(root, Tensor) or root.grad_fn is None:
            return
        for number, (site, is_number, name) in waiting.items():
            if _has(root.grad_fn, number):
                self._log.note("loss-reduced" if is_number else "value-reduced", site, name)

    def backward_ended(self, site: int | None) -> None:
        """Note that gradients have arrived.

        Args:
            site: Line of the backward.
        """
        self._functions.backward_ended()
        for owner, version in self._reduced_versions():
            if self._versions.get(owner, version) != version:
                # Lines of the first passes alone are known.
                self._late_line = self._late_line if site is None else site
                self.window.late[owner] = self._late_line
        self.window.has_backward, self._gradients = True, None

    def _reduced_versions(self) -> Iterator[tuple[int, int]]:
        """Yield the `id`s of parameters whose gradients were reduced, with versions of these."""
        for owner in self.window.gradients:
            entry = self._training.gradient_state.entries[self._positions[owner]]
            parameter = entry.parameter()
            if parameter is not None and parameter.grad is not None:
                yield owner, parameter.grad._version

    def step_begins(self, optimizer: Optimizer) -> Window:
        """Return the window of the step that begins, and start the next one."""
        window, self.window, self._gradients = self.window, Window(), None
        self._note_summed()
        if window.late:
            late = [
                window.late[key] for key in map(id, parameters_of(optimizer)) if key in window.late
            ]
            if late:
                self._log.note("step-after-late-backward", late[0], "")
        if window.last is not None and window.last[2]:
            site, owner, before, operation = window.last
            held = list(parameters_of(optimizer))
            now = norm_now(held, owner)
            if now is not None and before:
                numbers = {
                    "ratio": now / before,
                    "is_sum": float(operation == "SUM"),
                    "share": 1.0
                    if window.is_flat or window.is_scattered
                    else share_of(held, window.gradients),
                }
                self._log.note("gradient-scaled", site, operation, numbers)
                if window.is_scattered:
                    slices = {"ratio": now / before, "norm": now}
                    self._log.note("slice-scaled", site, str(self._log.step), slices)
        return window

    def _note_summed(self) -> None:
        """Record the numbers that ranks have summed for one of the first steps."""
        summed, self._summed = self._summed, []
        if self._log.step < _FIRST_SUMS:
            for site, tensor in summed:
                if tensor.is_cpu:  # on other devices, reading would wait for it
                    numbers = {"value": float(tensor.detach())}
                    self._log.note("summed-number", site, str(self._log.step), numbers)


def _has(root: Node, number: int) -> bool:
    return created(root) == number or contains(root, {number}, number)


def _addresses(training: TrainingState) -> Iterable[tuple[int, int, int]]:
    """Yield the address of each gradient, `id` of its parameter, and index of its entry."""
    for position, entry in enumerate(training.gradient_state.entries):
        parameter = entry.parameter()
        if parameter is not None and parameter.grad is not None:
            yield _address(parameter.grad), id(parameter), position


def _address(tensor: Tensor) -> int:
    local = getattr(tensor, "_local_tensor", tensor)
    try:
        return int(local.data_ptr())
    except RuntimeError:  # without memory of its own
        return 0


def _is_torchs(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return name == "torch" or name.startswith("torch.")
