"""Observes the values of a running forward: magnitudes, activations, the origin of NaN."""

import math
from collections.abc import Callable
from types import FrameType

import torch
from torch import Tensor
from torch._C import DisableTorchFunction, _len_torch_dispatch_stack

from gradscope.capture.naming import shape_of
from gradscope.capture.observed_calls import Args, Function, Kwargs, argument, writes_in_place
from gradscope.capture.reading import is_transforming
from gradscope.capture.source.lines import Caller, Line
from gradscope.capture.step.graph import VIEW_OPERATIONS
from gradscope.capture.step.views import is_old
from gradscope.capture.training.guard import without_dispatch_modes
from gradscope.probes.forward.forward_values import OutputWatches, Values, values_of
from gradscope.probes.forward.nonfinite_origins import (
    Origin,
    OriginTracker,
    Source,
    broken_of,
    storage_of,
)
from gradscope.probes.forward.operations import (
    NodeNumber,
    Operation,
    is_readable,
    node_number,
    plain_floats,
)
from gradscope.recording.evidence.failures import Broken

_NOT_COMPUTED = frozenset(
    {
        "__get__",
        "__set__",
        "backward",
        "detach",
        "empty",
        "empty_like",
        "new_empty",
        "register_hook",
        "requires_grad_",
        "retain_grad",
    }
)
"""Calls that return existing values, or uninitialized ones."""

_MAY_COPY = frozenset({"contiguous", "to"})
"""Calls that return what they get, or a copy of it."""

_MEASURED = ("source", "operands", "broken", "dtype", "number", "blocked_rows")
"""Fields of an origin that are not measured again when it is met again."""

_MOST_VALUES = 20_000
"""Number of tensors whose magnitudes are kept, the last ones."""


class ForwardWatch:
    """Measures the results of torch function calls.

    Operations inside a call, as in `multi_head_attention_forward`, are not observed.

    Args:
        source_of: Returns the existing tensor that has a storage.
        constants: Calls that write infinity intentionally, such as masks. It grows while outputs
            are measured, and saves their measurement otherwise.
        measures: Measure every output; otherwise only check that it is finite.
    """

    def __init__(
        self, source_of: Callable[[int], Source | None], constants: "Constants", *, measures: bool
    ) -> None:
        self.measures = measures
        self.values: dict[NodeNumber, tuple[int, Values]] = {}
        self.watches = OutputWatches()
        self._breaks = False
        """Whether the running assignment makes its target non-finite."""
        self.origins = _Origins(source_of, constants)

    def began(self, func: Function, args: Args, kwargs: Kwargs, frame: FrameType) -> None:
        """Check the tensor that is about to be written to."""
        name = getattr(func, "__name__", "")
        if _writes(name, kwargs) and not is_transforming():
            with DisableTorchFunction(), torch.no_grad(), without_dispatch_modes():
                self.origins.at(frame)
                if name == "__setitem__":
                    # The rest of a large buffer is not read each time that a row is written.
                    self._breaks = _is_broken(args[-1]) and not _is_broken(args[0])
                if name != "__setitem__" or self._breaks:
                    self.origins.before(*_in_place(name, args), dict(kwargs or {}))

    def returned(
        self, func: Function, args: Args, kwargs: Kwargs, result: object, frame: FrameType
    ) -> None:
        """Check the result of a call."""
        name = getattr(func, "__name__", "")
        if name in _NOT_COMPUTED or is_transforming():
            return
        # The usual case first: it runs for every torch call of a captured step.
        if not self.measures and self._is_sound(name, args, result):
            return
        if name in _MAY_COPY and args and result is args[0]:
            return
        with DisableTorchFunction(), torch.no_grad(), without_dispatch_modes():
            is_broken = name == "__setitem__" and self._breaks
            outputs = tuple(plain_floats(args[0] if is_broken else result))
            if outputs:
                self._check(_operation(name, args, dict(kwargs or {}), outputs), frame)

    def _is_sound(self, name: str, args: tuple[object, ...], result: object) -> bool:
        """Return whether one sum shows that a result is finite; if not, it may still be."""
        if type(result) is not Tensor or _writes(name, None):
            return False
        if not is_readable(result):
            return True
        # The sum would be seen by the script's mode, or would make a node.
        if _len_torch_dispatch_stack() or is_old(result):
            return False
        # The elements of a view were checked with its base, if the call got it.
        if result._is_view() and _is_given(result, args):
            return True
        if not _has_finite_sum(result.detach()):
            return False
        # The allocator reuses memory: this storage may have held a non-finite tensor before.
        self.origins.forget(result)
        return True

    def _check(self, operation: Operation, frame: FrameType) -> None:
        is_written = writes_in_place(operation.name)
        is_broken = False
        if not (self.measures or is_written) and self.origins.again(operation, frame):
            return
        for tensor in operation.outputs:
            is_broken |= self._is_broken(operation, tensor, is_written=is_written)
        if is_broken or is_written or self.origins.knows(operation.outputs):
            self.origins.at(frame)
            if not is_written:
                self.origins.before(operation.name, operation.args, operation.kwargs)
            self.origins.ran(operation)
            if not any(map(is_old, operation.outputs)):
                self.origins.settled(operation)

    def _is_broken(self, operation: Operation, tensor: Tensor, *, is_written: bool) -> bool:
        """Check one output; return whether it became non-finite."""
        number = None if is_old(tensor) else node_number(tensor)
        is_view = number is not None and not is_written and _is_view(tensor)
        if is_view and _is_given(tensor, operation.args):
            if self.measures and number is not None:
                self.watches.see_view(operation, tensor, number)
            return False  # from an earlier measurement
        if number is None or not self.measures:
            return not _has_finite_sum(tensor) and broken_of(tensor) is not None
        values = values_of(tensor)
        # A dict keeps the order of insertion: its first key is the oldest.
        if len(self.values) == _MOST_VALUES:
            del self.values[next(iter(self.values))]
        self.values[number] = tensor.numel(), values
        self.watches.see(operation, tensor, number)
        return values.nonfinite > 0


Constants = dict[tuple[str, Line | None], Origin]
"""By operation and line: the measurement of an intentional infinity."""


class _Origins(OriginTracker):
    """Tracks origins by operation and line."""

    def __init__(self, source_of: Callable[[int], Source | None], constants: Constants) -> None:
        super().__init__(source_of)
        self._constants = constants
        self._frame: FrameType | None = None
        self._lines = Caller()

    def at(self, frame: FrameType) -> None:
        """Set the frame that makes the next call."""
        self._frame = frame

    def knows(self, tensors: tuple[Tensor, ...]) -> bool:
        """Return whether the memory of these tensors was non-finite before."""
        return bool(self._origin_of) and any(storage_of(t) in self._origin_of for t in tensors)

    def forget(self, tensor: Tensor) -> None:
        """Record that a tensor is finite, whatever its memory held before."""
        if self._origin_of:
            self._origin_of.pop(storage_of(tensor), None)

    def again(self, operation: Operation, frame: FrameType) -> bool:
        """Return whether an intentional infinity was written as before, and already measured."""
        self.at(frame)
        known = self._constants.get((operation.name, self._line()))
        if known is None or len(operation.outputs) != 1:
            return False
        output, given = operation.outputs[0], tuple(plain_floats(list(operation.args)))
        is_alike = [one.shape for one in known.operands] == [shape_of(tensor) for tensor in given]
        # A sum of finite numbers and -inf is -inf; NaN would show that something else broke.
        if not is_alike or self.knows(given) or not math.isinf(float(output.sum())):
            return False
        found = {name: getattr(known, name) for name in _MEASURED}
        index = self._add(operation.name, known.makes, **found)
        if index is not None:
            self._origin_of[storage_of(output)] = index
            self.origins[index].output = node_number(output)
        return True

    def _add(self, operation: str, makes: Broken, **found: object) -> int | None:
        """Record an origin; only the last one of each line, which may run very often."""
        origin = (operation, self._line(), makes, found.get("source"), found.get("name"))
        # A loop over time steps may write a mask at one line thousands of times.
        known = next((one for one in self.origins if _likeness(one) == origin), None)
        if known is None:
            index = super()._add(operation, makes, **found)
            if index is not None and found.get("source") == "constant" and makes == "infinity":
                self._constants[operation, self._line()] = self.origins[index]
            return index
        for name, value in {**found, "output": None}.items():
            setattr(known, name, value)
        if known.source in ("operation", "constant"):
            self._made = known
        return known.index

    def _line(self) -> Line | None:
        return self._lines.line(self._frame)


def _likeness(origin: Origin) -> tuple[object, ...]:
    return origin.operation, origin.line, origin.makes, origin.source, origin.name


def _is_view(tensor: Tensor) -> bool:
    return type(tensor.grad_fn).__name__ in VIEW_OPERATIONS


def _is_given(result: Tensor, args: tuple[object, ...]) -> bool:
    """Return whether a result is a view of what a call was given.

    A linear layer of a batch of sequences returns a view of what it has computed.
    """
    storage = storage_of(result)
    return any(storage_of(tensor) == storage for tensor in plain_floats(list(args)))


def _writes(name: str, kwargs: Kwargs) -> bool:
    if writes_in_place(name):
        return name not in _NOT_COMPUTED
    return name == "__setitem__" or bool(kwargs and kwargs.get("inplace"))


def _in_place(name: str, args: Args) -> tuple[str, tuple[object, ...]]:
    """Return the dispatcher's name of an operation that writes to its first argument."""
    if name == "__setitem__":
        is_tensor = isinstance(args[-1], Tensor)
        return "copy_" if is_tensor else "fill_", (args[0], args[-1])
    return name if writes_in_place(name) else f"{name}_", args


def _is_broken(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    return any(broken_of(tensor) for tensor in plain_floats(value))


def _has_finite_sum(tensor: Tensor) -> bool:
    """Return whether the sum is finite, which proves that every element is."""
    # One pass without a temporary tensor. A sum may overflow, so callers then check the elements.
    return math.isfinite(float(tensor.sum()))


def _operation(
    name: str, args: Args, kwargs: dict[str, object], outputs: tuple[Tensor, ...]
) -> Operation:
    """Return the dispatcher operation of a torch function call."""
    if name == "__setitem__":
        name, args = _in_place(name, args)
    plain = name.strip("_")
    if plain in ("softmax", "log_softmax"):
        given = argument(args, kwargs, 1, "dim")
        # The Python functions have further arguments, such as a stack level, that the operation
        # lacks.
        args = (argument(args, kwargs, 0, "input"), given)
    if _writes(name, kwargs):
        name, args = _in_place(plain, args)
    return Operation(name=name, args=args, kwargs=kwargs, outputs=outputs, is_view=False)
